"""One number for each window of each channel: the largest, or the average."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Draw, Example, Planar, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, SMALLEST_NORMAL, Array, Truth, flushed
from tilewright.model.layers.sizes import (
    Shape,
    Sides,
    Size,
    dimensions,
    flag,
    pair,
    picture,
    short,
    sides,
    windows,
)
from tilewright.precision import FLOAT32, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, init=False)
class Pooling(Planar):
    """One number for each window of each channel, of what it covers of the picture.

    Windows start up to `padding` outside of it. Those that would stick out further are dropped, or
    kept with `ceil`, as long as they start within the picture or its padding before it.
    """

    kind = "pool"
    words = "each window's largest or average value"
    passes_on = True
    size: tuple[int, int]
    stride: tuple[int, int]
    padding: Sides
    ceil: bool

    def __init__(
        self,
        size: Size,
        *,
        stride: Size | None = None,
        padding: Size | Sides = 0,
        ceil: bool = False,
    ) -> None:
        window = pair("pooling size", size, minimum=1)
        object.__setattr__(self, "size", window)
        step = window if stride is None else pair("stride", stride, minimum=1)
        object.__setattr__(self, "stride", step)
        around = sides("padding", padding)
        object.__setattr__(self, "padding", around)
        object.__setattr__(self, "ceil", flag("ceil", ceil))
        for axis in range(4):
            if around[axis] >= window[axis % 2]:
                raise TilewrightError(
                    f"padding {short(around)} leaves windows of {dimensions(window)} outside"
                )

    @property
    def specials(self) -> frozenset[str]:
        found = {"padding": any(self.padding), "ceil": self.ceil}
        return frozenset(f"{words} of a pooling" for words, there in found.items() if there)

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = picture(shape)
        above, left, below, right = self.padding
        padded = (height + above + below, width + left + right)
        out = list(windows("pooling window", padded, self.size, self.stride))
        for axis in range(2) if self.ceil else ():
            left_over = (padded[axis] - self.size[axis]) % self.stride[axis]
            start = out[axis] * self.stride[axis]
            if left_over and start < shape[1 + axis] + self.padding[axis]:
                out[axis] += 1
        return (channels, *out)

    def beyond(self, shape: Shape) -> Sides:
        """How far windows reach over the picture on each side; less than nothing where they leave
        out some of it."""
        _, *out = self.output_shape(shape)
        below, right = (
            (out[axis] - 1) * self.stride[axis] + self.size[axis] - self.padding[axis]
            - shape[1 + axis]
            for axis in range(2)
        )  # fmt: skip
        return self.padding[0], self.padding[1], below, right

    def without_ceil(self, shape: Shape) -> Self:
        """The same of pictures of this shape, with padding that reaches as far as its windows."""
        above, left, below, right = self.beyond(shape)
        padding = (above, left, max(0, below), max(0, right))
        return replace(self, padding=padding, ceil=False)

    @property
    def summary(self) -> str:
        text = dimensions(self.size)
        if self.stride != self.size:
            text += f" stride {short(self.stride)}"
        if any(self.padding):
            text += f" pad {short(self.padding)}"
        return f"{text} ceil" if self.ceil else text

    @property
    def padding_of_torch(self) -> tuple[int, int] | None:
        """The same as PyTorch's own, if it has such a padding."""
        above, left, below, right = self.padding
        small = 2 * above <= self.size[0] and 2 * left <= self.size[1]
        return (above, left) if (above, left) == (below, right) and small else None

    def taps(self, x: Array, outside: float = 0.0) -> Array:
        """All pictures seen through one place of the window, stacked."""
        above, left, below, right = (max(0, side) for side in self.beyond(x.shape[1:]))
        _, out_y, out_x = self.output_shape(x.shape[1:])
        x = np.pad(x, ((0, 0), (0, 0), (above, below), (left, right)), constant_values=outside)
        (size_y, size_x), (stride_y, stride_x) = self.size, self.stride
        return np.stack([
            x[:, :, ky : ky + (out_y - 1) * stride_y + 1 : stride_y,
              kx : kx + (out_x - 1) * stride_x + 1 : stride_x]
            for ky in range(size_y) for kx in range(size_x)
        ])  # fmt: skip

    @property
    def _attributes(self) -> dict[str, int | float | tuple[int, ...]]:
        """As ONNX names them."""
        return {
            "kernel_shape": self.size, "strides": self.stride, "pads": self.padding,
            "ceil_mode": int(self.ceil),
        }  # fmt: skip

    @classmethod
    def drawn(cls, draw: Draw) -> list[Example]:
        size = (draw(1, 5), draw(1, 5))
        made = cls(size, stride=(draw(1, 4), draw(1, 4)))
        around = (draw(0, size[0] - 1), draw(0, size[1] - 1))
        padded = cls(size, stride=made.stride, padding=around, ceil=bool(draw(0, 1)))
        shape = (draw(1, 40), size[0] + draw(0, 9), size[1] + draw(0, 9))
        return [(shape, made), (shape, padded)]


@dataclass(frozen=True, init=False)
class MaxPool(Pooling):
    type = "max_pool"
    forms = EVERY

    @property
    def summary(self) -> str:
        return f"max {super().summary}"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        value = self.taps(x, -np.inf).max(0)
        return Truth(value, self.taps(error).max(0) + flushed(value))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        own = self.padding_of_torch

        def pool(x: Tensor) -> Tensor:
            if own is not None:
                return functional.max_pool2d(x, self.size, self.stride, own, ceil_mode=self.ceil)
            if self.specials:
                above, left, below, right = (max(0, s) for s in self.beyond(tuple(x.shape[1:])))
                x = functional.pad(x, (left, right, above, below), value=-math.inf)
            return functional.max_pool2d(x, self.size, self.stride)

        return pool

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("MaxPool", self._attributes),)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((3, 7, 9), cls(2)),
            ((2, 9, 8), cls(3, stride=2)),
            ((1, 8, 11), cls((1, 2), stride=3)),
            ((5, 4, 6), cls((4, 6))),
            ((33, 9, 9), cls(7, stride=3)),
            ((3, 7, 8), cls(3, stride=2, padding=1)),
            ((2, 8, 7), cls((3, 2), stride=2, padding=(1, 0, 2, 1), ceil=True)),
        ]

    def inputs(
        self, shape: Shape, largest: float, generator: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        very = -(10.0 ** generator.uniform(-30, math.log10(largest) - 0.5, shape))
        return {"very negative numbers": very}


@dataclass(frozen=True, init=False)
class AveragePool(Pooling):
    """Zeros of the padding may count as values."""

    type = "average_pool"
    forms = EVERY
    takes_huge = False  # sums would leave float32
    count_padding: bool

    def __init__(
        self,
        size: Size,
        *,
        stride: Size | None = None,
        padding: Size | Sides = 0,
        ceil: bool = False,
        count_padding: bool = False,
    ) -> None:
        super().__init__(size, stride=stride, padding=padding, ceil=ceil)
        object.__setattr__(self, "count_padding", flag("count_padding", count_padding))

    def counts(self, shape: Shape) -> Array:
        """How many values each window's sum is divided by, along y and x."""
        _, *out = self.output_shape(shape)
        along = []
        for axis in range(2):
            before, after = self.padding[axis], self.padding[axis + 2]
            if not self.count_padding:
                before = after = 0
            first = np.arange(out[axis]) * self.stride[axis] - self.padding[axis]
            last = np.minimum(first + self.size[axis], shape[1 + axis] + after)
            along.append(last - np.maximum(first, -before))
        return np.outer(*along).astype(np.float64)

    def flops(self, shape: Shape) -> int:
        return math.prod(self.output_shape(shape)) * math.prod(self.size)

    @property
    def summary(self) -> str:
        counted = " counting it" if self.count_padding and any(self.padding) else ""
        return f"average {super().summary}{counted}"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """A sum of `size` terms, then a division, or a product with a rounded reciprocal."""
        taps, errors = self.taps(x), self.taps(error)
        counts = self.counts(x.shape[1:])
        magnitude = (np.abs(taps) + errors).sum(0) / counts
        rounding = FLOAT32.sum_factor(len(taps) - 1 + 2 * DIVIDE_ULP) * magnitude
        rounding += len(taps) * SMALLEST_NORMAL
        return Truth(taps.sum(0) / counts, rounding + errors.sum(0) / counts)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        own = None if self.ceil else self.padding_of_torch
        counts: dict[object, Tensor] = {}

        def pool(x: Tensor) -> Tensor:
            if own is not None:
                return functional.avg_pool2d(
                    x, self.size, self.stride, own, count_include_pad=self.count_padding
                )
            shape = tuple(x.shape[1:])
            above, left, below, right = (max(0, side) for side in self.beyond(shape))
            x = functional.pad(x, (left, right, above, below))
            sums = functional.avg_pool2d(x, self.size, self.stride, divisor_override=1)
            # Made once: a CUDA graph takes no copies from the host.
            key = shape, x.device, x.dtype
            if key not in counts:
                counts[key] = x.new_tensor(self.counts(shape))
            return sums / counts[key]

        return pool

    def onnx(self) -> tuple[OnnxNode, ...]:
        counted = {"count_include_pad": int(self.count_padding)}
        return (OnnxNode("AveragePool", {**self._attributes, **counted}),)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((3, 7, 9), cls(2)),
            ((2, 9, 8), cls(3, stride=2)),
            ((4, 5, 5), cls(5)),
            ((2, 7, 8), cls((2, 3), stride=(3, 1))),
            ((3, 7, 8), cls(3, stride=2, padding=1)),
            ((2, 8, 7), cls((3, 2), stride=2, padding=(1, 0, 2, 1), ceil=True)),
            ((4, 6, 9), cls(3, stride=(2, 3), padding=1, ceil=True, count_padding=True)),
        ]
