"""A network under construction from a file of somebody else's, by the words that formats share.

ONNX and PyTorch name the same operations differently; both say them to a `Draft`, which keeps them
as parts in the order of the file. What of these no network has is folded into the layers around
when the draft is finished (`tilewright.model.formats.folding`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.gates import gated
from tilewright.model.formats.parts import CLOSE, FREE, Affine, Array, Pad, Part, Value, Wide
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    HardSigmoid,
    Join,
    Layer,
    LeakyReLU,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    ReLU6,
    Shape,
    Softmax,
    dimensions,
)
from tilewright.model.layers.sizes import Sides
from tilewright.model.network import LARGEST_TENSOR

# A clip is computed by a line between its bounds, which are not to be much larger than values.
LARGEST_BOUND = 64
MOST_PARTS = 256  # that channels are split into
MOST_CHOSEN = 1 << 24  # weights of convolutions that choose channels


class Draft:
    """Its first part is the input. `normalises`: what is done to that first is part of how pixels
    enter; it is not where numbers may be given instead of pixels, which skip that."""

    def __init__(self, pixels: Pixels, normalises: bool) -> None:
        _check_size(pixels.shape)
        self.parts = [Part("input", pixels, (), pixels.shape)]
        self.normalises = normalises
        self.notes: dict[str, str] = {}
        self.chosen = 0  # weights of convolutions that choose channels
        # Of parts that are channels of another one: which part, and which channels.
        self.picked: dict[int, tuple[int, tuple[int, ...]]] = {}

    def shape(self, value: Value) -> Shape:
        """As the file has it: of one image."""
        if value.expanded is not None:
            return value.expanded
        shape = self.parts[value.part].shape + (1,) * value.ones
        if value.split is not None:
            return (*value.split, *shape[1:])
        return (*shape[1:], shape[0]) if value.last else shape

    def add(
        self, name: str, layer: Layer, *taken: Value, weights: Mapping[str, Array] | None = None
    ) -> Value:
        """One more part."""
        if any(value.expanded for value in taken):
            raise TilewrightError("takes values that were repeated, which a product alone can do")
        if any(value.split for value in taken):
            raise TilewrightError("takes channels in groups, which can be put in order alone")
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
        shape, features = self.shape(x), self.parts[x.part].shape
        row = len(shape) == 1 or (x.last and len(features) == 1)
        if x.last and weight.ndim == 2 and len(features) == 3:
            # Channels of every pixel are a row.
            return replace(self._by_pixel(name, replace(x, last=False), weight, bias), last=True)
        if not row or weight.ndim != 2 or weight.shape[1] != features[0]:
            raise TilewrightError(
                f"weights {dimensions(weight.shape)} do not fit {dimensions(shape)}: a row of "
                "features is needed"
            )
        if x.rows is not None:
            weight = np.stack([_channels_first(row, x.rows) for row in weight])
        layer = FullyConnected(weight.shape[0], bias=bias is not None)
        made = self.add(name, layer, x, weights=_weights(weight, bias))
        return replace(x, part=made.part, rows=None)

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

    def difference(self, name: str, a: Value, b: Value) -> Value:
        return self.sum(name, a, self.affine(name, b, np.array(-1.0), np.array(0.0)))

    def concat(self, name: str, axis: int, *taken: Value) -> Value:
        """`axis` counts the batch."""
        rank = len(self.shape(taken[0])) + 1
        if axis % rank != (rank - 1 if taken[0].last else 1):
            raise TilewrightError(f"concatenates along axis {axis}; channels are understood")
        if any(value.rows for value in taken):
            raise TilewrightError("concatenates rows of pictures whose channels come last")
        return taken[0] if len(taken) == 1 else self._join(name, Concat(), *taken)

    def product(self, name: str, a: Value, b: Value) -> Value:
        """Of two values: an activation that gates its own argument, or any others."""
        for x, gate in ((a, b), (b, a)):
            if x.expanded or replace(gate, part=x.part) != x:
                continue  # they are not at the same places
            if (found := gated(self.parts, gate.part, x.part)) is not None:
                layer, part, factor = found
                made = self.each(name, layer, replace(x, part=part))
                return self.affine(name, made, np.array(factor), np.array(0.0))

        def large(each: Value) -> tuple[int, int]:
            shape = self.parts[each.part].shape
            return math.prod(shape), len(shape)

        return self._product(name, *sorted((a, b), key=large, reverse=True))

    def _product(self, name: str, x: Value, by: Value) -> Value:
        """Of a value and of one that has no more numbers, as the file's shapes broadcast."""
        wanted, repeated = self.shape(x), self.shape(by)
        x, by = replace(x, expanded=None), replace(by, expanded=None)
        shape, own = self.shape(x), self.shape(by)
        if wanted != shape or repeated not in (own, shape):
            raise TilewrightError("multiplies values that were both repeated")
        if (x.last, x.rows, len(shape)) != (by.last, by.rows, len(own)):
            raise TilewrightError(
                f"multiplies {dimensions(shape)} by {dimensions(own)}, whose axes are in another "
                "order"
            )
        return replace(x, part=self.add(name, Multiply(), x, by).part)

    def expand(self, x: Value, shape: Shape) -> Value:
        """Values repeated along axes where they have one place."""
        own = self.shape(x)
        if len(own) != len(shape) or any(
            size not in (1, whole) for size, whole in zip(own, shape, strict=True)
        ):
            raise TilewrightError(f"repeats {dimensions(own)} to {dimensions(shape)}")
        return x if own == shape else replace(x, expanded=shape)

    def clip(self, name: str, x: Value, low: float, high: float) -> Value:
        if low == 0 and high == 6:
            return self.each(name, ReLU6(), x)
        if low == 0 and high >= float(np.finfo(np.float32).max):
            return self.each(name, ReLU(), x)
        before = self.parts[x.part]
        if low == -np.inf and high == 6 and isinstance(before.layer, ReLU):
            return self.each(name, ReLU6(), replace(x, part=before.sources[0]))
        if low == -np.inf and isinstance(before.layer, ReLU) and high > 0:
            return self.clip(name, replace(x, part=before.sources[0]), 0, high)
        bounds = [abs(each) for each in (low, high) if np.isfinite(each)]
        if not bounds or low >= high or max(bounds) > LARGEST_BOUND:
            raise TilewrightError(
                f"clips to {low:g} and {high:g}; bounds up to {LARGEST_BOUND} are understood"
            )
        if len(bounds) == 2:
            # A line from zero to one, and what it is that these stand for.
            line = HardSigmoid(decimal(1 / (high - low)), decimal(-low / (high - low)))
            made = self.each(name, line, x)
            return self.affine(name, made, np.array(high - low), np.array(low))
        # What is beyond the bound, and the bound.
        sign, bound = (1.0, low) if np.isfinite(low) else (-1.0, high)
        beyond = self.affine(name, x, np.array(sign), np.array(-sign * bound))
        made = self.each(name, ReLU(), beyond)
        return self.affine(name, made, np.array(sign), np.array(bound))

    def prelu(self, name: str, x: Value, slopes: Array) -> Value:
        """Slopes are broadcast as constants are. Those that differ: the value times them, and where
        it is positive what is missing."""
        if slopes.size == 0:
            raise TilewrightError("has no slopes")
        if (slopes == slopes.flat[0]).all():
            return self.leaky(name, x, float(slopes.flat[0]))
        wide, zero = slopes.astype(np.float64), np.array(0.0)
        positive = self.affine(name, self.each(name, ReLU(), x), 1 - wide, zero)
        return self.sum(name, self.affine(name, x, wide, zero), positive)

    def leaky(self, name: str, x: Value, slope: float) -> Value:
        return self.each(name, LeakyReLU(decimal(slope)), x)

    def hard_sigmoid(self, name: str, x: Value, slope: float = 1 / 6, shift: float = 0.5) -> Value:
        usual = abs(slope - 1 / 6) <= CLOSE and abs(shift - 0.5) <= CLOSE
        layer = HardSigmoid() if usual else HardSigmoid(decimal(slope), decimal(shift))
        return self.each(name, layer, x)

    def power(self, name: str, x: Value, exponent: float) -> Value:
        """A value times itself, once or twice."""
        if exponent not in (2, 3):
            raise TilewrightError(f"to the power of {exponent:g}; 2 and 3 are understood")
        square = self.product(name, x, x)
        return square if exponent == 2 else self.product(name, square, x)

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
        return self._chosen(name, x, [-1] * before + [*range(channels)] + [-1] * after)

    def _by_pixel(self, name: str, x: Value, weight: Array, bias: Array | None) -> Value:
        """The channels of every pixel times a matrix."""
        return self.convolution(
            name, x, weight[:, :, None, None], bias, stride=(1, 1), padding=(0, 0, 0, 0),
            dilation=(1, 1), groups=1,
        )  # fmt: skip

    def _chosen(self, name: str, x: Value, channels: Sequence[int]) -> Value:
        """These channels of every pixel; -1 is one of zeros."""
        count = self.parts[x.part].shape[0]
        self.chosen += count * len(channels)
        if self.chosen > MOST_CHOSEN:
            raise TilewrightError(f"puts channels in order by more than {MOST_CHOSEN:,} weights")
        weight = np.zeros((len(channels), count), np.float32)
        for row, channel in enumerate(channels):
            if channel >= 0:
                weight[row, channel] = 1
        return self._by_pixel(name, x, weight, None)

    def pick(self, name: str, x: Value, channels: Sequence[int]) -> Value:
        """Some of a picture's channels, in any order, by a convolution; of channels that were
        picked, those of the picture that they are from."""
        if x.part in self.picked:
            part, own = self.picked[x.part]
            x, channels = replace(x, part=part), [own[each] for each in channels]
        (count, *_) = self.parts[self.picture(replace(x, last=False)).part].shape
        if list(channels) == list(range(count)):
            return x
        made = replace(x, part=self._chosen(name, replace(x, last=False), channels).part)
        self.picked[made.part] = x.part, tuple(channels)
        return made

    def split(self, name: str, x: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
        """Channels in parts of these sizes, one after the other."""
        rank, channels = len(self.shape(x)) + 1, self.parts[x.part].shape[0]
        if rank != 4 or x.split or axis % rank != (3 if x.last else 1):
            raise TilewrightError(f"splits axis {axis}; channels of pictures are understood")
        if not sizes or min(sizes) < 1 or sum(sizes) != channels or len(sizes) > MOST_PARTS:
            raise TilewrightError(f"splits {channels} channels into {list(sizes)[:9]}")
        ends = np.cumsum(sizes).tolist()
        return tuple(
            self.pick(name, x, range(end - size, end))
            for size, end in zip(sizes, ends, strict=True)
        )

    def shuffle(self, name: str, x: Value, groups: int) -> Value:
        """The first channel of every group, then the second of every group."""
        channels = self.shape(self.picture(x))[0]
        if groups < 1 or channels % groups:
            raise TilewrightError(f"{groups} groups of {channels} channels")
        return self.pick(name, x, np.arange(channels).reshape(groups, -1).T.ravel().tolist())

    def every(self, name: str, x: Value, axis: int, part: tuple[int, int, int]) -> Value:
        """From start to end of an axis, which counts the batch, in steps: all of it, or every so
        many rows or columns, which is a pooling of single pixels."""
        start, end, step = part
        rank = len(self.shape(x)) + 1
        whole = FREE if axis == 0 else self.shape(x)[axis - 1]
        if start == 0 and end >= whole and step == 1:
            return x
        places = (1, 2) if x.last else (2, 3)
        if rank == 4 and axis == (3 if x.last else 1) and not x.split:
            chosen = range(whole)[slice(start, end, step if step > 0 else None)]
            if not chosen or step < 1:
                raise TilewrightError(f"takes no channels, or backwards: {start} to {end}")
            return self.pick(name, x, chosen)
        if rank != 4 or axis not in places or start != 0 or end < whole or step < 1:
            raise TilewrightError(
                f"a part of axis {axis}; channels are understood, and every so many rows or columns"
            )
        stride = (step, 1) if axis == places[0] else (1, step)
        return replace(x, part=self.add(name, MaxPool(1, stride=stride), x).part)

    def softmax(self, name: str, x: Value, axis: int) -> Value:
        shape, features = self.shape(x), self.parts[x.part].shape
        if len(shape) == 3 and features[1:] in ((), (1, 1)) and axis % 4 == (3 if x.last else 1):
            # Of one pixel's channels, or of a row with axes behind it.
            row = self.add(name, Flatten(), x) if len(features) == 3 else x
            return replace(self.add(name, Softmax(), row), last=x.last, ones=2)
        if len(shape) != 1 or axis % 2 != 1 or x.rows:
            raise TilewrightError(
                f"softmax along axis {axis} of {dimensions(shape)}; a row of features is understood"
            )
        return self.add(name, Softmax(), x)

    def transpose(self, name: str, x: Value, order: tuple[int, ...]) -> Value:
        """`order` counts the batch."""
        if order == tuple(range(len(order))):
            return x
        if x.expanded:
            raise TilewrightError("turns axes of values that were repeated")
        if x.split and order == (0, 2, 1, 3, 4):
            groups, each = x.split
            picked = self.shuffle(name, replace(x, split=None), groups)
            return replace(picked, split=(each, groups))
        if len(order) == 4 and order == ((0, 3, 1, 2) if x.last else (0, 2, 3, 1)):
            return replace(x, last=not x.last)
        raise TilewrightError(f"reorders axes as {list(order)}; channels first or last, else none")

    def reshape(self, name: str, x: Value, shape: Shape) -> Value:
        """To a row, or back to the picture that a row was."""
        if shape == self.shape(x):
            return x
        features = self.parts[x.part].shape
        if shape == features and x.split:
            return replace(x, split=None)
        plain = len(features) == 3 and not (x.last or x.expanded or x.split)
        if plain and len(shape) == 4 and (math.prod(shape[:2]), *shape[2:]) == features:
            return replace(x, split=(shape[0], shape[1]))
        if shape == (*features, 1) and len(features) == 1 and not (x.last or x.rows):
            return replace(x, ones=1)
        if len(shape) == 3 and (pixel := self._pixel(x)) is not None:
            for turned in (pixel, replace(pixel, last=True)):
                if self.shape(turned) == shape:
                    return turned
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

    def _pixel(self, x: Value) -> Value | None:
        """A row as a picture of one pixel, or with the axes of one."""
        part = self.parts[x.part]
        if len(part.shape) != 1 or x.rows is not None or x.expanded:
            return None
        if not isinstance(part.layer, Flatten):
            return replace(x, last=False, ones=2)
        before = Value(part.sources[0])
        return before if self.shape(before)[1:] == (1, 1) else None

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


def decimal(value: float) -> float:
    """The decimal number that was rounded to float32, so that 0.01 is 0.01."""
    return float(str(np.float32(value)))


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
