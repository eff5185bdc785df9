"""A network under construction from a file of somebody else's, by the words that formats share.

ONNX and PyTorch name the same operations differently; both say them to a `Draft`, which keeps them
as parts in the order of the file. A part is a layer, or one of a few helpers that no network has:
`Affine` (a batch normalisation, a constant added or multiplied), `Pad` and `HardSigmoid`. They are
folded into the layers around them when the draft is finished (`tilewright.model.formats.folding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    HardSwish,
    Join,
    Layer,
    LeakyReLU,
    MaxPool,
    Pixels,
    ReLU,
    ReLU6,
    Shape,
    Sigmoid,
    SiLU,
    Softmax,
    dimensions,
)
from tilewright.model.layers.sizes import Sides
from tilewright.model.network import LARGEST_TENSOR

Array = NDArray[Any]
Wide = NDArray[np.float64]
# Of a free batch, in shapes that a graph computes: no other size is like it.
FREE = 999_983
# How far a constant may be from the one that a pattern needs, which files round to float32.
CLOSE = 1e-6


@dataclass(frozen=True)
class Value:
    """The output of a part, as the file sees it.

    `last`: a picture with its channels last. `rows`: features that were such a picture, whose order
    is y, x, channel; its shape in our order. `ones`: how many axes of 1 a row has behind it.
    """

    part: int
    last: bool = False
    rows: Shape | None = None
    ones: int = 0


@dataclass(frozen=True, eq=False)
class Affine(Layer):
    """Every channel times a number, and another added; `norm`: a batch normalisation."""

    kind = "affine"
    scale: Wide
    shift: Wide
    norm: bool = False

    @property
    def nothing(self) -> bool:
        return bool((np.abs(self.scale - 1) <= CLOSE).all() and not self.shift.any())


@dataclass(frozen=True)
class Pad(Layer):
    """Zeros around a picture, or what is nothing to the largest of a window: minus infinity, or
    pixels of the edge, which is in every window that has a part of them."""

    kind = "pad"
    padding: Sides
    fill: Literal["zeros", "minus infinity", "the edge"] = "zeros"

    def output_shape(self, shape: Shape) -> Shape:
        above, left, below, right = self.padding
        return shape[0], shape[1] + above + below, shape[2] + left + right


@dataclass(frozen=True)
class HardSigmoid(Layer):
    """min(max(x + 3, 0), 6) / 6, which only hard-swish is made of here."""

    kind = "hard_sigmoid"


@dataclass(frozen=True)
class Part:
    """`name` is the file's, for what is said of it."""

    name: str
    layer: Layer
    sources: tuple[int, ...]
    shape: Shape
    weights: Mapping[str, Array] = field(default_factory=dict)


class Draft:
    """Its first part is the input. `normalises`: what is done to that first is part of how pixels
    enter; it is not where numbers may be given instead of pixels, which skip that."""

    def __init__(self, pixels: Pixels, normalises: bool) -> None:
        _check_size(pixels.shape)
        self.parts = [Part("input", pixels, (), pixels.shape)]
        self.normalises = normalises
        self.notes: dict[str, str] = {}

    def shape(self, value: Value) -> Shape:
        """As the file has it: of one image."""
        shape = self.parts[value.part].shape
        return (*shape[1:], shape[0]) if value.last else shape + (1,) * value.ones

    def add(
        self, name: str, layer: Layer, *taken: Value, weights: Mapping[str, Array] | None = None
    ) -> Value:
        """One more part."""
        shapes = [self.parts[value.part].shape for value in taken]
        shape = layer.output_shape(*shapes) if isinstance(layer, Join) else (
            layer.output_shape(shapes[0])
        )  # fmt: skip
        _check_size(shape)
        sources = tuple(value.part for value in taken)
        self.parts.append(Part(name, layer, sources, shape, weights or {}))
        return Value(len(self.parts) - 1)

    def each(self, name: str, layer: Layer, x: Value) -> Value:
        """A layer that makes of every value another at the same place."""
        return replace(x, part=self.add(name, layer, x).part)

    def picture(self, x: Value) -> Value:
        """Refuse what is no picture with its channels first."""
        if x.last or len(self.shape(x)) != 3:
            shape = dimensions(self.shape(x))
            raise TilewrightError(f"needs pictures with channels first, not {shape}")
        return x

    def convolution(
        self, name: str, x: Value, weight: Array, bias: Array | None, *, stride: tuple[int, int],
        padding: Sides, dilation: tuple[int, int], groups: int,
    ) -> Value:  # fmt: skip
        if weight.ndim != 4:
            raise TilewrightError(f"a kernel of {weight.ndim - 2} dimensions; 2 are understood")
        filters, channels, down, across = weight.shape
        layer = Convolution(
            filters, (down, across), stride=stride, padding=padding, dilation=dilation,
            groups=groups, bias=bias is not None,
        )  # fmt: skip
        needed = self.shape(self.picture(x))[0]
        if channels * groups != needed:
            raise TilewrightError(f"weights for {channels * groups} channels, of {needed}")
        return self.add(name, layer, x, weights=_weights(weight, bias))

    def fully_connected(self, name: str, x: Value, weight: Array, bias: Array | None) -> Value:
        """`weight` is output, input; the input must be a row."""
        shape = self.shape(x)
        if len(shape) != 1 or weight.ndim != 2 or weight.shape[1] != shape[0]:
            raise TilewrightError(
                f"weights {dimensions(weight.shape)} do not fit {dimensions(shape)}: a row of "
                "features is needed"
            )
        if x.rows is not None:
            weight = np.stack([_channels_first(row, x.rows) for row in weight])
        layer = FullyConnected(weight.shape[0], bias=bias is not None)
        return self.add(name, layer, replace(x, rows=None), weights=_weights(weight, bias))

    def affine(self, name: str, x: Value, scale: Array, shift: Array) -> Value:
        """Constants as the file has them, broadcast over images of the file's shape."""
        scales, shifts = (self._of_channels(x, each) for each in (scale, shift))
        made = Affine(scales, shifts)
        return x if made.nothing else self.each(name, made, x)

    def batch_norm(
        self, name: str, x: Value, scale: Array, shift: Array, mean: Array, variance: Array,
        epsilon: float,
    ) -> Value:  # fmt: skip
        channels = self.parts[x.part].shape[0]
        numbers = [np.asarray(each, np.float64) for each in (scale, shift, mean, variance)]
        if x.last or any(each.shape != (channels,) for each in numbers):
            raise TilewrightError(f"needs four rows of {channels} numbers, one for each channel")
        gamma, beta, centre, spread = numbers
        if not (spread + epsilon > 0).all():
            raise TilewrightError("a variance is negative")
        factor = gamma / np.sqrt(spread + epsilon)
        return self.each(name, Affine(factor, beta - centre * factor, norm=True), x)

    def sum(self, name: str, *taken: Value) -> Value:
        if len(set(taken)) == 1:
            return self.affine(name, taken[0], np.array(float(len(taken))), np.array(0.0))
        return self._join(name, Add(), *taken)

    def concat(self, name: str, axis: int, *taken: Value) -> Value:
        """`axis` counts the batch."""
        rank = len(self.shape(taken[0])) + 1
        if axis % rank != (rank - 1 if taken[0].last else 1):
            raise TilewrightError(f"concatenates along axis {axis}; channels are understood")
        if any(value.rows for value in taken):
            raise TilewrightError("concatenates rows of pictures whose channels come last")
        return taken[0] if len(taken) == 1 else self._join(name, Concat(), *taken)

    def product(self, name: str, a: Value, b: Value) -> Value:
        """Of two values: only activations that gate their own argument are understood."""
        for x, gate in ((a, b), (b, a)):
            part = self.parts[gate.part]
            if isinstance(part.layer, Sigmoid) and part.sources == (x.part,):
                return self.each(name, SiLU(), x)
            if (factor := self._gated(gate.part, x.part)) is not None:
                made = self.each(name, HardSwish(), x)
                return self.affine(name, made, np.array(factor), np.array(0.0))
        raise TilewrightError("multiplies two values that both depend on the image")

    def clip(self, name: str, x: Value, low: float, high: float) -> Value:
        if low == 0 and high == 6:
            return self.each(name, ReLU6(), x)
        if low == 0 and high >= float(np.finfo(np.float32).max):
            return self.each(name, ReLU(), x)
        before = self.parts[x.part]
        if low == -np.inf and high == 6 and isinstance(before.layer, ReLU):
            return self.each(name, ReLU6(), replace(x, part=before.sources[0]))
        raise TilewrightError(f"clips to {low:g} and {high:g}; 0 and 6, or 0 alone, are understood")

    def leaky(self, name: str, x: Value, slope: float) -> Value:
        # The decimal number that was rounded to float32, so that 0.01 is 0.01.
        return self.each(name, LeakyReLU(float(str(np.float32(slope)))), x)

    def hard_sigmoid(self, name: str, x: Value, slope: float = 1 / 6, shift: float = 0.5) -> Value:
        if abs(slope - 1 / 6) > CLOSE or abs(shift - 0.5) > CLOSE:
            raise TilewrightError(
                f"slope {slope:g} and shift {shift:g}; 1/6 and 1/2 are understood"
            )
        return self.each(name, HardSigmoid(), x)

    def max_pool(self, name: str, x: Value, layer: MaxPool) -> Value:
        return self.add(name, layer, self.picture(x))

    def average_pool(self, name: str, x: Value, layer: AveragePool) -> Value:
        return self.add(name, layer, self.picture(x))

    def over_picture(self, name: str, x: Value, largest: bool = False, keep: bool = True) -> Value:
        """The average, or the largest, of every channel; without `keep` as a row."""
        _, *sizes = self.parts[x.part].shape
        if len(sizes) != 2:
            raise TilewrightError("needs a picture")
        size = (sizes[0], sizes[1])
        first = self.add(name, MaxPool(size) if largest else AveragePool(size), x)
        return replace(first, last=x.last) if keep else self.add(name, Flatten(), first)

    def reduce(
        self, name: str, x: Value, axes: tuple[int, ...], keep: bool, largest: bool = False
    ) -> Value:
        """Averages over axes, which count the batch."""
        rank = len(self.shape(x)) + 1
        places = {axis % rank for axis in axes}
        if rank != 4 or places != ({1, 2} if x.last else {2, 3}):
            raise TilewrightError(f"reduces axes {list(axes)}; height and width are understood")
        return self.over_picture(name, x, largest, keep)

    def pad(
        self, name: str, x: Value, padding: Sides, channels: tuple[int, int], mode: str,
        level: float,
    ) -> Value:  # fmt: skip
        """Of height and width, and channels before and after."""
        if min(padding) < 0:
            raise TilewrightError("cuts a picture's edges off")
        if mode == "constant" and level == 0:
            around = Pad(padding)
        elif mode == "constant" and level <= float(np.finfo(np.float32).min):
            around = Pad(padding, "minus infinity")
        elif mode in ("edge", "replicate"):
            around = Pad(padding, "the edge")
        else:
            with_what = f"{level:g}" if mode == "constant" else repr(mode[:40])
            raise TilewrightError(
                f"pads with {with_what}; 0 is understood, and, before a maximum "
                "over windows, minus infinity and the edge"
            )
        if any(channels) and around.fill != "zeros":
            raise TilewrightError(f"pads channels with {around.fill}")
        x = self._more_channels(name, x, *channels)
        if not any(padding):
            return x
        return replace(x, part=self.add(name, around, x).part)

    def _more_channels(self, name: str, x: Value, before: int, after: int) -> Value:
        """Channels of zeros before and after the picture's own, by a convolution."""
        if min(before, after) < 0:
            raise TilewrightError("cuts channels off")
        if not before and not after:
            return x
        channels = self.shape(self.picture(x))[0]
        weight = np.eye(channels + before + after, channels, -before, dtype=np.float32)
        return self.convolution(
            name, x, weight[:, :, None, None], None, stride=(1, 1), padding=(0, 0, 0, 0),
            dilation=(1, 1), groups=1,
        )  # fmt: skip

    def every(self, name: str, x: Value, axis: int, part: tuple[int, int, int]) -> Value:
        """From start to end of an axis, which counts the batch, in steps: all of it, or every so
        many rows or columns, which is a pooling of single pixels."""
        start, end, step = part
        rank = len(self.shape(x)) + 1
        whole = FREE if axis == 0 else self.shape(x)[axis - 1]
        if start == 0 and end >= whole and step == 1:
            return x
        places = (1, 2) if x.last else (2, 3)
        if rank != 4 or axis not in places or start != 0 or end < whole or step < 1:
            raise TilewrightError(
                f"a part of axis {axis}; every so many rows or columns are understood"
            )
        stride = (step, 1) if axis == places[0] else (1, step)
        return replace(x, part=self.add(name, MaxPool(1, stride=stride), x).part)

    def softmax(self, name: str, x: Value, axis: int) -> Value:
        shape = self.shape(x)
        if len(shape) != 1 or axis % 2 != 1 or x.rows:
            raise TilewrightError(
                f"softmax along axis {axis} of {dimensions(shape)}; a row of features is understood"
            )
        return self.add(name, Softmax(), x)

    def transpose(self, x: Value, order: tuple[int, ...]) -> Value:
        """`order` counts the batch."""
        if order == tuple(range(len(order))):
            return x
        if len(order) == 4 and order == ((0, 3, 1, 2) if x.last else (0, 2, 3, 1)):
            return replace(x, last=not x.last)
        raise TilewrightError(f"reorders axes as {list(order)}; channels first or last, else none")

    def reshape(self, name: str, x: Value, shape: Shape) -> Value:
        """To a row, or back to the picture that a row was."""
        if shape == self.shape(x):
            return x
        if math.prod(shape) == math.prod(self.shape(x)):
            part = self.parts[x.part]
            turned = replace(x, last=not x.last)
            if len(part.shape) == 3 and shape == self.shape(turned) and _one_order(part.shape):
                return turned
            if shape == part.shape and not x.last:
                return replace(x, ones=0)
            if len(shape) == 2 and shape == part.shape[:2] and not x.last:
                return replace(self.add(name, Flatten(), x), ones=1)  # one of two squeezed
            if len(shape) == 1:
                ordered = x.last and not _one_order(part.shape)
                row = self.add(name, Flatten(), x)
                return replace(row, rows=part.shape if ordered else None)
            if isinstance(part.layer, Flatten):
                before = Value(part.sources[0], last=x.rows is not None)
                if self.shape(before) == shape:
                    return before
        raise TilewrightError(
            f"reshapes {dimensions(self.shape(x))} to {dimensions(shape)}; flattening an image is "
            "understood"
        )

    def _join(self, name: str, layer: Join, *taken: Value) -> Value:
        if len({(value.last, value.rows, value.ones) for value in taken}) > 1:
            raise TilewrightError("joins values whose axes are in different orders")
        return replace(taken[0], part=self.add(name, layer, *taken).part)

    def _of_channels(self, x: Value, constant: Array) -> Wide:
        """A number for each channel out of what is broadcast over a batch."""
        channels, shape = self.parts[x.part].shape[0], self.shape(x)
        numbers = np.asarray(constant, np.float64)
        own = (1,) * (len(shape) + 1 - numbers.ndim) + numbers.shape
        if len(own) != len(shape) + 1 or any(
            size not in (1, whole) for size, whole in zip(own, (1, *shape), strict=True)
        ):
            raise TilewrightError(
                f"a constant of {dimensions(numbers.shape)} does not fit {dimensions(shape)}"
            )
        found = numbers.reshape(own[1:])
        if x.last:
            found = np.moveaxis(found, -1, 0)
        if x.rows and found.size > 1:
            found = np.asarray(_channels_first(found, x.rows), np.float64)
        found = found.reshape(len(found), -1)
        if (found != found[:, :1]).any():
            raise TilewrightError("a constant differs within a channel")
        return np.array(np.broadcast_to(found[:, 0], channels))

    def _gated(self, gate: int, x: int) -> float | None:
        """How many times a part is the hard sigmoid of another, if it is."""
        part = self.parts[gate]
        if isinstance(part.layer, HardSigmoid):
            return 1.0 if part.sources == (x,) else None
        if isinstance(part.layer, Affine) and not part.layer.shift.any():
            inner, factors = self._gated(part.sources[0], x), part.layer.scale
            return inner * float(factors[0]) if inner and (factors == factors[0]).all() else None
        if not isinstance(part.layer, ReLU6):
            return None
        moved = self.parts[part.sources[0]]
        three = isinstance(moved.layer, Affine) and moved.sources == (x,)
        if three and isinstance(moved.layer, Affine):
            three = bool((moved.layer.scale == 1).all() and (moved.layer.shift == 3).all())
        return 6.0 if three else None


def _check_size(shape: Shape) -> None:
    if math.prod(shape) > LARGEST_TENSOR:
        raise TilewrightError(f"{dimensions(shape)} are more than {LARGEST_TENSOR:,} values")


def _one_order(picture: Shape) -> bool:
    """Whether a picture's values lie the same way with channels first and last."""
    return picture[0] == 1 or math.prod(picture[1:]) == 1


def name_of(path: Path) -> str:
    """A network's name, out of its file's."""
    return "".join(letter for letter in path.stem if letter.isprintable())[:60] or "network"


def _weights(weight: Array, bias: Array | None) -> dict[str, Array]:
    return {"weight": weight} if bias is None else {"weight": weight, "bias": bias.reshape(-1)}


def _channels_first(row: NDArray[np.generic], picture: Shape) -> NDArray[np.generic]:
    """A picture's values as a row, in the order channel, y, x instead of y, x, channel."""
    channels, height, width = picture
    return np.moveaxis(row.reshape(height, width, channels), -1, 0).reshape(-1)
