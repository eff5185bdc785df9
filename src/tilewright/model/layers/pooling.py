"""One number for each window of each channel: the largest, or the average."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers.base import Draw, Example, Layer, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, SMALLEST_NORMAL, Array, Truth, flushed
from tilewright.model.layers.sizes import Shape, Size, dimensions, pair, picture, short, windows
from tilewright.precision import FLOAT32, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, init=False)
class Pooling(Layer):
    """One number for each window of each channel. Windows that would stick out are dropped."""

    kind = "pool"
    words = "each window's largest or average value"
    passes_on = True
    size: tuple[int, int]
    stride: tuple[int, int]

    def __init__(self, size: Size, *, stride: Size | None = None) -> None:
        window = pair("pooling size", size, minimum=1)
        object.__setattr__(self, "size", window)
        step = window if stride is None else pair("stride", stride, minimum=1)
        object.__setattr__(self, "stride", step)

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = picture(shape)
        return (channels, *windows("pooling window", (height, width), self.size, self.stride))

    @property
    def summary(self) -> str:
        stride = "" if self.stride == self.size else f" stride {short(self.stride)}"
        return f"{dimensions(self.size)}{stride}"

    def taps(self, x: Array) -> Array:
        """All pictures seen through one place of the window, stacked."""
        (size_y, size_x), (stride_y, stride_x) = self.size, self.stride
        out_y = (x.shape[2] - size_y) // stride_y + 1
        out_x = (x.shape[3] - size_x) // stride_x + 1
        return np.stack([
            x[:, :, ky : ky + (out_y - 1) * stride_y + 1 : stride_y,
              kx : kx + (out_x - 1) * stride_x + 1 : stride_x]
            for ky in range(size_y) for kx in range(size_x)
        ])  # fmt: skip

    @classmethod
    def drawn(cls, draw: Draw) -> list[Example]:
        size = (draw(1, 5), draw(1, 5))
        made = cls(size, stride=(draw(1, 4), draw(1, 4)))
        return [((draw(1, 40), size[0] + draw(0, 9), size[1] + draw(0, 9)), made)]


@dataclass(frozen=True, init=False)
class MaxPool(Pooling):
    type = "max_pool"
    forms = EVERY

    @property
    def summary(self) -> str:
        return f"max {super().summary}"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        value = self.taps(x).max(0)
        return Truth(value, self.taps(error).max(0) + flushed(value))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return lambda x: functional.max_pool2d(x, self.size, self.stride)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("MaxPool", {"kernel_shape": self.size, "strides": self.stride}),)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((3, 7, 9), cls(2)),
            ((2, 9, 8), cls(3, stride=2)),
            ((1, 8, 11), cls((1, 2), stride=3)),
            ((5, 4, 6), cls((4, 6))),
            ((33, 9, 9), cls(7, stride=3)),
        ]

    def inputs(
        self, shape: Shape, largest: float, generator: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        very = -(10.0 ** generator.uniform(-30, math.log10(largest) - 0.5, shape))
        return {"very negative numbers": very}


@dataclass(frozen=True, init=False)
class AveragePool(Pooling):
    type = "average_pool"
    forms = EVERY
    takes_huge = False  # sums would leave float32

    def flops(self, shape: Shape) -> int:
        return math.prod(self.output_shape(shape)) * math.prod(self.size)

    @property
    def summary(self) -> str:
        return f"average {super().summary}"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """A sum of `size` terms, then a division, or a product with a rounded reciprocal."""
        taps, errors = self.taps(x), self.taps(error)
        magnitude = (np.abs(taps) + errors).mean(0)
        rounding = FLOAT32.sum_factor(len(taps) - 1 + 2 * DIVIDE_ULP) * magnitude
        rounding += len(taps) * SMALLEST_NORMAL
        return Truth(taps.mean(0), rounding + errors.mean(0))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return lambda x: functional.avg_pool2d(x, self.size, self.stride)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("AveragePool", {"kernel_shape": self.size, "strides": self.stride}),)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((3, 7, 9), cls(2)),
            ((2, 9, 8), cls(3, stride=2)),
            ((4, 5, 5), cls(5)),
            ((2, 7, 8), cls((2, 3), stride=(3, 1))),
        ]
