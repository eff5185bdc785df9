"""Kernels slid over a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.base import Draw, Example, Layer, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Array, Truth
from tilewright.model.layers.sizes import (
    Shape,
    Size,
    dimensions,
    flag,
    pair,
    picture,
    short,
    whole,
    windows,
)
from tilewright.model.layers.sums import weighted_sum
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, init=False)
class Convolution(Layer):
    """`filters` kernels slid over the zero-padded input (cross-correlation, as everywhere)."""

    kind = "conv"
    type = "convolution"
    forms = EVERY
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    bias: bool

    def __init__(
        self, filters: int, kernel: Size, *, stride: Size = 1, padding: Size = 0, bias: bool = True
    ) -> None:
        object.__setattr__(self, "filters", whole("filters", filters, minimum=1))
        object.__setattr__(self, "kernel", pair("kernel", kernel, minimum=1))
        object.__setattr__(self, "stride", pair("stride", stride, minimum=1))
        object.__setattr__(self, "padding", pair("padding", padding, minimum=0))
        object.__setattr__(self, "bias", flag("bias", bias))

    def output_shape(self, shape: Shape) -> Shape:
        _, height, width = picture(shape)
        padded = (height + 2 * self.padding[0], width + 2 * self.padding[1])
        return (self.filters, *windows("kernel", padded, self.kernel, self.stride))

    def parameter_shapes(self, shape: Shape) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.filters, shape[0], *self.kernel)}
        if self.bias:
            shapes["bias"] = (self.filters,)
        return shapes

    def flops(self, shape: Shape) -> int:
        return 2 * math.prod(self.output_shape(shape)) * shape[0] * math.prod(self.kernel)

    def inside_flops(self, shape: Shape) -> int:
        _, *sizes = self.output_shape(shape)
        taps = 1
        for axis, places in enumerate(sizes):
            first = range(-self.padding[axis], places * self.stride[axis], self.stride[axis])
            ends = [(max(0, at), min(shape[1 + axis], at + self.kernel[axis])) for at in first]
            taps *= sum(max(0, end - start) for start, end in ends[:places])
        return 2 * self.filters * shape[0] * taps

    @property
    def summary(self) -> str:
        text = f"{self.filters}@{dimensions(self.kernel)}"
        if self.stride != (1, 1):
            text += f" stride {short(self.stride)}"
        if self.padding != (0, 0):
            text += f" pad {short(self.padding)}"
        return text if self.bias else f"{text} no bias"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        def products(values: Array, weight: Array) -> Array:
            return convolve(values, weight, self)

        return weighted_sum(products, x, error, weights, precision)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        weight, bias = parameters[0], parameters[1] if self.bias else None
        return lambda x: functional.conv2d(x, weight, bias, self.stride, self.padding)

    def onnx(self) -> tuple[OnnxNode, ...]:
        settings = {
            "kernel_shape": self.kernel, "strides": self.stride, "pads": self.padding + self.padding
        }  # fmt: skip
        return (OnnxNode("Conv", settings, takes_parameters=True),)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((1, 1, 1), cls(1, 1)),
            ((3, 5, 7), cls(2, (5, 7))),
            ((17, 9, 16), cls(15, 3, padding=1, bias=False)),
            ((32, 11, 8), cls(16, 3, stride=2)),
            ((1, 10, 95), cls(3, 2, stride=3, bias=False)),
            ((15, 7, 15), cls(3, (1, 5), stride=(2, 1), padding=(0, 2))),
            ((2, 3, 3), cls(17, 5, padding=2)),
            ((16, 6, 17), cls(33, 1)),
            ((65, 5, 4), cls(130, 3, padding=1)),
            ((1, 3, 131), cls(2, (1, 9))),
            ((1, 131, 3), cls(2, (9, 1))),
            ((2, 4, 31), cls(3, 3, padding=1)),
            ((3, 3, 35), cls(4, 3)),
            ((31, 9, 9), cls(31, 1, stride=2, padding=1)),
            ((33, 13, 13), cls(32, 5, stride=4, padding=5)),
        ]

    @classmethod
    def drawn(cls, draw: Draw) -> list[Example]:
        found: list[Example] = []
        for _ in range(8):
            kernel, padding = (draw(1, 6), draw(1, 6)), (draw(0, 3), draw(0, 3))
            sizes = [max(1, k - 2 * p) + draw(0, 9) for k, p in zip(kernel, padding, strict=True)]
            stride, bias = (draw(1, 3), draw(1, 3)), bool(draw(0, 1))
            drawn = cls(draw(1, 19), kernel, stride=stride, padding=padding, bias=bias)
            found.append(((draw(1, 9), *sizes), drawn))
        return found


def convolve(x: Array, weight: Array, operation: Convolution) -> Array:
    """One tap of the kernel after the other: a strided picture times filters x channels."""
    (pad_y, pad_x), (stride_y, stride_x) = operation.padding, operation.stride
    padded = np.pad(x, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
    images, channels, height, width = padded.shape
    filters, _, kernel_y, kernel_x = weight.shape
    out_y = (height - kernel_y) // stride_y + 1
    out_x = (width - kernel_x) // stride_x + 1
    total = np.zeros((images, filters, out_y * out_x))
    for ky in range(kernel_y):
        for kx in range(kernel_x):
            if not weight[:, :, ky, kx].any():
                continue
            rows = slice(ky, ky + (out_y - 1) * stride_y + 1, stride_y)
            columns = slice(kx, kx + (out_x - 1) * stride_x + 1, stride_x)
            tap = padded[:, :, rows, columns].reshape(images, channels, -1)
            total += weight[:, :, ky, kx] @ tap
    return total.reshape(images, filters, out_y, out_x)
