"""One convolution with some images of a batch, computed in float64 in ways that may be mistaken."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Convolution

Array = NDArray[np.float64]
Numbers = NDArray[np.int64]
SIDES = ("top", "bottom", "left", "right")


@dataclass(frozen=True, eq=False)
class Case:
    """A convolution of images `x` with `weight` (filters, channels, y, x) and `bias`."""

    x: Array
    weight: Array
    bias: Array
    layer: Convolution

    @cached_property
    def sizes(self) -> tuple[int, int]:
        """Of the output."""
        (kernel_y, kernel_x), (pad_y, pad_x) = self.layer.kernel, self.layer.padding[:2]
        (stride_y, stride_x), (height, width) = self.layer.stride, self.x.shape[2:]
        return (
            (height + 2 * pad_y - kernel_y) // stride_y + 1,
            (width + 2 * pad_x - kernel_x) // stride_x + 1,
        )

    def starts(
        self, stride: tuple[int, int] | None = None, padding: tuple[int, int] | None = None
    ) -> tuple[Numbers, Numbers]:
        """Where the windows of all rows and columns begin."""
        stride, padding = stride or self.layer.stride, padding or self.layer.padding[:2]
        y, x = (
            np.arange(size) * step - pad
            for size, step, pad in zip(self.sizes, stride, padding, strict=True)
        )
        return y, x

    def taken(self, y: Numbers, x: Numbers, untested: frozenset[str] = frozenset()) -> Array:
        """The pictures at rows y and columns x: zero outside, but on sides that are not tested,
        where what lies next in memory is taken. NaN where that is not known."""
        images, channels, height, width = self.x.shape
        rows, columns = y[:, None], x[None, :]
        outside = {"top": rows < 0, "bottom": rows >= height, "left": columns < 0,
                   "right": columns >= width}  # fmt: skip
        zero = np.zeros(np.broadcast_shapes(rows.shape, columns.shape), bool)
        for side in SIDES:
            if side not in untested:
                zero |= outside[side]
        place = rows * width + columns
        planes = np.arange(images * channels)[:, None, None] * (height * width)
        flat = planes + place
        known = (flat >= 0) & (flat < self.x.size)
        values = np.where(known, self.x.reshape(-1)[np.where(known, flat, 0)], np.nan)
        values[:, zero] = 0
        return values.reshape(images, channels, *zero.shape)

    def sums(
        self,
        weight: Array | None = None,
        starts: tuple[Numbers, Numbers] | None = None,
        untested: frozenset[str] = frozenset(),
        x: Array | None = None,
    ) -> Array:
        """The output without its bias."""
        case = self if x is None else Case(x, self.weight, self.bias, self.layer)
        weights = self.weight if weight is None else weight
        first_y, first_x = starts or self.starts()
        total: Array = np.zeros((len(self.x), len(weights), *self.sizes))
        for ky in range(weights.shape[2]):
            for kx in range(weights.shape[3]):
                seen = case.taken(first_y + ky, first_x + kx, untested)
                total += np.einsum("fc,icyx->ifyx", weights[:, :, ky, kx], seen, optimize=True)
        return total

    @property
    def column(self) -> Array:
        """The bias beside every plane."""
        return self.bias[:, None, None]

    @cached_property
    def right(self) -> Array:
        return self.sums() + self.column

    @cached_property
    def magnitude(self) -> Array:
        """Sizes of all products, added up: what rounding errors are measured by."""
        return self.sums(np.abs(self.weight), x=np.abs(self.x)) + np.abs(self.column)
