"""What a network under construction is mostly made of: weighted sums, constants and joins.

The rest of what a `Draft` understands is built on these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import Affine, Array, Part, Value, Wide, place_of
from tilewright.model.layers import (
    Add,
    Concat,
    Convolution,
    FullyConnected,
    Join,
    Layer,
    Pixels,
    Shape,
    dimensions,
)
from tilewright.model.layers.sizes import Sides
from tilewright.model.network import LARGEST_TENSOR

MOST_COMPUTED = 1 << 28


class Sums:
    """Its first part is the input. `normalises`: what is done to that first is part of how pixels
    enter; it is not where numbers may be given instead of pixels, which skip that."""

    def __init__(self, pixels: Pixels, normalises: bool) -> None:
        _check_size(pixels.shape)
        self.parts = [Part("input", pixels, (), pixels.shape)]
        self.normalises = normalises
        self.notes: dict[str, str] = {}
        self.values = 0  # of constants that were computed

    def computed(self, constant: Array) -> Array:
        """One more array that was computed of constants: there may be so many values in all."""
        self.values += constant.size
        if self.values > MOST_COMPUTED:
            raise TilewrightError(f"computes more than {MOST_COMPUTED:,} values of constants")
        return constant

    def shape(self, value: Value) -> Shape:
        """As the file has it: of one image."""
        if value.expanded is not None:
            return value.expanded
        shape = self.parts[value.part].shape + (1,) * value.ones
        if value.split is not None:
            return (*value.split, *shape[1:])
        if value.flat:
            return shape[0], math.prod(shape[1:])
        return (*shape[1:], shape[0]) if value.last else shape

    def add(
        self, name: str, layer: Layer, *taken: Value, weights: Mapping[str, Array] | None = None
    ) -> Value:
        """One more part."""
        if any(value.expanded for value in taken):
            raise TilewrightError("takes values that were repeated, which a product alone can do")
        if any(value.split for value in taken):
            raise TilewrightError("takes channels in groups, which can be put in order alone")
        if any(value.flat for value in taken):
            raise TilewrightError("takes pictures whose rows are one behind the other")
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
        return replace(x, part=self.add(name, layer, replace(x, flat=False)).part)

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

    def _by_pixel(self, name: str, x: Value, weight: Array, bias: Array | None) -> Value:
        """The channels of every pixel times a matrix."""
        return self.convolution(
            name, x, weight[:, :, None, None], bias, stride=(1, 1), padding=(0, 0, 0, 0),
            dilation=(1, 1), groups=1,
        )  # fmt: skip

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

    def concat(self, name: str, axis: int, *taken: Value) -> Value:
        """`axis` counts the batch."""
        rank = len(self.shape(taken[0])) + 1
        if place_of(axis, rank) != (rank - 1 if taken[0].last else 1):
            raise TilewrightError(f"concatenates along axis {axis}; channels are understood")
        if any(value.rows for value in taken):
            raise TilewrightError("concatenates rows of pictures whose channels come last")
        return taken[0] if len(taken) == 1 else self._join(name, Concat(), *taken)

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
        if not np.array_equal(found, np.broadcast_to(found[:, :1], found.shape), equal_nan=True):
            raise TilewrightError("a constant differs within a channel")
        return np.array(np.broadcast_to(found[:, 0], channels))


def _check_size(shape: Shape) -> None:
    if math.prod(shape) > LARGEST_TENSOR:
        raise TilewrightError(f"{dimensions(shape)} are more than {LARGEST_TENSOR:,} values")


def _weights(weight: Array, bias: Array | None) -> dict[str, Array]:
    """Checked before anything is computed of them."""
    found = {"weight": weight} if bias is None else {"weight": weight, "bias": bias.reshape(-1)}
    for what, each in found.items():
        if each.dtype.kind != "f":
            raise TilewrightError(f"its {what} holds {each.dtype}, not floating point")
    if bias is not None and bias.size != len(weight):
        raise TilewrightError(f"a bias of {bias.size:,} for {len(weight):,} outputs")
    return found


def _channels_first(row: NDArray[np.generic], picture: Shape) -> NDArray[np.generic]:
    """A picture's values as a row, in the order channel, y, x instead of y, x, channel."""
    channels, height, width = picture
    return np.moveaxis(row.reshape(height, width, channels), -1, 0).reshape(-1)
