"""Kernels slid over a picture."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Draw, Example, Layer, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Array, Truth
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
    symmetric,
    whole,
    windows,
)
from tilewright.model.layers.sums import weighted_sum
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, init=False)
class Convolution(Layer):
    """`filters` kernels slid over the zero-padded input (cross-correlation, as everywhere).

    Filters and channels may be in `groups`: the filters of a group see its channels alone. The taps
    of a kernel are `dilation` apart.
    """

    kind = "conv"
    type = "convolution"
    forms = EVERY
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: Sides
    dilation: tuple[int, int]
    groups: int
    bias: bool

    def __init__(
        self,
        filters: int,
        kernel: Size,
        *,
        stride: Size = 1,
        padding: Size | Sides = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        object.__setattr__(self, "filters", whole("filters", filters, minimum=1))
        object.__setattr__(self, "kernel", pair("kernel", kernel, minimum=1))
        object.__setattr__(self, "stride", pair("stride", stride, minimum=1))
        object.__setattr__(self, "padding", sides("padding", padding))
        object.__setattr__(self, "dilation", pair("dilation", dilation, minimum=1))
        object.__setattr__(self, "groups", whole("groups", groups, minimum=1))
        object.__setattr__(self, "bias", flag("bias", bias))

    @property
    def extent(self) -> tuple[int, int]:
        """What the kernel spans along y and x."""
        down, across = (
            each * (taps - 1) + 1 for each, taps in zip(self.dilation, self.kernel, strict=True)
        )
        return down, across

    @property
    def specials(self) -> frozenset[str]:
        found = {
            "groups": self.groups > 1,
            "dilation": self.dilation != (1, 1),
            "other padding on opposite sides": not symmetric(self.padding),
        }
        return frozenset(words for words, there in found.items() if there)

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = picture(shape)
        for what, count in (("channels", channels), ("filters", self.filters)):
            if count % self.groups:
                raise TilewrightError(f"{count} {what} cannot be divided into {self.groups} groups")
        above, left, below, right = self.padding
        padded = (height + above + below, width + left + right)
        return (self.filters, *windows("kernel", padded, self.extent, self.stride))

    def parameter_shapes(self, shape: Shape) -> dict[str, Shape]:
        channels = shape[0] // self.groups
        shapes: dict[str, Shape] = {"weight": (self.filters, channels, *self.kernel)}
        if self.bias:
            shapes["bias"] = (self.filters,)
        return shapes

    def flops(self, shape: Shape) -> int:
        channels = shape[0] // self.groups
        return 2 * math.prod(self.output_shape(shape)) * channels * math.prod(self.kernel)

    def inside_flops(self, shape: Shape) -> int:
        _, *sizes = self.output_shape(shape)
        taps = 1
        for axis, places in enumerate(sizes):
            first = np.arange(places) * self.stride[axis] - self.padding[axis]
            at = first[:, None] + np.arange(self.kernel[axis]) * self.dilation[axis]
            taps *= int(((at >= 0) & (at < shape[1 + axis])).sum())
        return 2 * self.filters * (shape[0] // self.groups) * taps

    @property
    def summary(self) -> str:
        text = f"{self.filters}@{dimensions(self.kernel)}"
        if self.stride != (1, 1):
            text += f" stride {short(self.stride)}"
        if any(self.padding):
            text += f" pad {short(self.padding)}"
        if self.dilation != (1, 1):
            text += f" dilation {short(self.dilation)}"
        if self.groups > 1:
            text += f" groups {self.groups}"
        return text if self.bias else f"{text} no bias"

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        def products(values: Array, weight: Array) -> Array:
            return convolve(values, weight, self)

        return weighted_sum(products, x, error, weights, precision)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        weight, bias = parameters[0], parameters[1] if self.bias else None
        above, left, below, right = self.padding
        rest, around = (self.dilation, self.groups), (above, left)
        if symmetric(self.padding):
            return lambda x: functional.conv2d(x, weight, bias, self.stride, around, *rest)
        wider = (left, right, above, below)
        return lambda x: functional.conv2d(
            functional.pad(x, wider), weight, bias, self.stride, 0, *rest
        )

    def onnx(self) -> tuple[OnnxNode, ...]:
        settings: dict[str, int | float | tuple[int, ...]] = {
            "kernel_shape": self.kernel, "strides": self.stride, "pads": self.padding,
            "dilations": self.dilation, "group": self.groups,
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
            ((6, 7, 9), cls(6, 3, padding=1, groups=6)),
            ((17, 9, 8), cls(34, 3, stride=2, padding=(0, 0, 1, 1), groups=17, bias=False)),
            ((4, 8, 7), cls(6, (3, 2), padding=2, groups=2)),
            ((3, 11, 12), cls(5, 3, padding=(2, 1, 0, 3), dilation=(2, 3))),
            ((8, 9, 9), cls(4, 2, stride=2, padding=1, dilation=2, groups=4)),
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
        for _ in range(2):
            groups, dilation = draw(1, 5), (draw(1, 3), draw(1, 3))
            around = (draw(0, 2), draw(0, 2), draw(0, 2), draw(0, 2))
            drawn = cls(
                groups * draw(1, 4), (draw(1, 3), draw(1, 3)), stride=(draw(1, 2), draw(1, 2)),
                padding=around, dilation=dilation, groups=groups,
            )  # fmt: skip
            sizes = [each + draw(0, 7) for each in drawn.extent]
            found.append(((groups * draw(1, 4), *sizes), drawn))
        return found


def convolve(x: Array, weight: Array, operation: Convolution) -> Array:
    """One tap of the kernel after the other: a strided picture times filters x channels."""
    (above, left, below, right), (stride_y, stride_x) = operation.padding, operation.stride
    padded = np.pad(x, ((0, 0), (0, 0), (above, below), (left, right)))
    images, channels, height, width = padded.shape
    filters, _, kernel_y, kernel_x = weight.shape
    groups, (apart_y, apart_x) = operation.groups, operation.dilation
    out_y = (height - operation.extent[0]) // stride_y + 1
    out_x = (width - operation.extent[1]) // stride_x + 1
    total = np.zeros((images, groups, filters // groups, out_y * out_x))
    for ky in range(kernel_y):
        for kx in range(kernel_x):
            factors = weight[:, :, ky, kx].reshape(groups, filters // groups, -1)
            if not factors.any():
                continue
            top, first = ky * apart_y, kx * apart_x
            rows = slice(top, top + (out_y - 1) * stride_y + 1, stride_y)
            columns = slice(first, first + (out_x - 1) * stride_x + 1, stride_x)
            tap = padded[:, :, rows, columns].reshape(images, groups, channels // groups, -1)
            total += factors @ tap
    return total.reshape(images, filters, out_y, out_x)
