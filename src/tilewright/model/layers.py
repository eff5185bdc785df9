"""The layers a network is made of: frozen facts, with shapes and arithmetic counted.

A shape is that of one image, without the batch: `(channels, height, width)`, or `(features,)`
after a fully connected layer. Activations are stored channel, y, x.

FLOP are counted the customary way: two for each multiply-add of a convolution or a fully
connected layer (the bias is where the sum starts, so it adds none), one for each addition of
an average pooling. Comparisons, tanh and softmax count as none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.errors import TilewrightError

Shape = tuple[int, ...]
LARGEST = 1_000_000  # of any single size; what is larger is a mistake
Size = int | tuple[int, int]


def dimensions(shape: Shape) -> str:
    """A shape as people write it: 3x32x32."""
    return "x".join(map(str, shape))


@dataclass(frozen=True)
class Layer:
    """One operation. `kind` groups layers in tables; several classes may share one."""

    kind: ClassVar[str]

    def output_shape(self, shape: Shape) -> Shape:
        """The shape this layer turns `shape` into; TilewrightError if it cannot take it."""
        return shape

    def parameter_shapes(self, shape: Shape) -> dict[str, Shape]:
        """The shapes of this layer's parameters by role (`weight`, `bias`)."""
        return {}

    def flops(self, shape: Shape) -> int:
        """Floating-point operations for one image."""
        return 0

    def inside_flops(self, shape: Shape) -> int:
        """The same without taps outside the image, whose products are zero."""
        return self.flops(shape)

    @property
    def summary(self) -> str:
        """The layer's settings in a few characters, for tables and errors."""
        return ""


@dataclass(frozen=True)
class Pixels(Layer):
    """How a picture enters the network: a uint8 `value` becomes `value * scale + shift`."""

    kind = "input"
    shape: Shape
    scale: float = 1 / 255
    shift: float = -0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) != 3:
            raise TilewrightError(f"input shape {self.shape} is not channels, height, width")
        for size in self.shape:
            _whole("input size", size, minimum=1)
        for name, value in (("scale", self.scale), ("shift", self.shift)):
            if not abs(value) <= 1e30:  # true for NaN, too
                raise TilewrightError(f"input {name} must be between -1e30 and 1e30")

    def output_shape(self, shape: Shape) -> Shape:
        return self.shape


@dataclass(frozen=True, init=False)
class Convolution(Layer):
    """`filters` kernels slid over the zero-padded input (cross-correlation, as everywhere)."""

    kind = "conv"
    filters: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    bias: bool

    def __init__(
        self, filters: int, kernel: Size, *, stride: Size = 1, padding: Size = 0, bias: bool = True
    ) -> None:
        object.__setattr__(self, "filters", _whole("filters", filters, minimum=1))
        object.__setattr__(self, "kernel", _pair("kernel", kernel, minimum=1))
        object.__setattr__(self, "stride", _pair("stride", stride, minimum=1))
        object.__setattr__(self, "padding", _pair("padding", padding, minimum=0))
        object.__setattr__(self, "bias", _flag("bias", bias))

    def output_shape(self, shape: Shape) -> Shape:
        _, height, width = _picture(shape)
        padded = (height + 2 * self.padding[0], width + 2 * self.padding[1])
        return (self.filters, *_windows("kernel", padded, self.kernel, self.stride))

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
            text += f" stride {_short(self.stride)}"
        if self.padding != (0, 0):
            text += f" pad {_short(self.padding)}"
        return text if self.bias else f"{text} no bias"


@dataclass(frozen=True)
class ReLU(Layer):
    kind = "relu"


@dataclass(frozen=True)
class Tanh(Layer):
    kind = "tanh"


@dataclass(frozen=True, init=False)
class Pooling(Layer):
    """One number for each window of each channel. Windows that would stick out are dropped."""

    kind = "pool"
    size: tuple[int, int]
    stride: tuple[int, int]

    def __init__(self, size: Size, *, stride: Size | None = None) -> None:
        window = _pair("pooling size", size, minimum=1)
        object.__setattr__(self, "size", window)
        step = window if stride is None else _pair("stride", stride, minimum=1)
        object.__setattr__(self, "stride", step)

    def output_shape(self, shape: Shape) -> Shape:
        channels, height, width = _picture(shape)
        return (channels, *_windows("pooling window", (height, width), self.size, self.stride))

    @property
    def summary(self) -> str:
        stride = "" if self.stride == self.size else f" stride {_short(self.stride)}"
        return f"{dimensions(self.size)}{stride}"


@dataclass(frozen=True, init=False)
class MaxPool(Pooling):
    @property
    def summary(self) -> str:
        return f"max {super().summary}"


@dataclass(frozen=True, init=False)
class AveragePool(Pooling):
    def flops(self, shape: Shape) -> int:
        return math.prod(self.output_shape(shape)) * math.prod(self.size)

    @property
    def summary(self) -> str:
        return f"average {super().summary}"


@dataclass(frozen=True)
class Flatten(Layer):
    """A picture read as one row of features, in the order channel, y, x: no arithmetic."""

    kind = "flatten"

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


@dataclass(frozen=True)
class FullyConnected(Layer):
    """Every output is a weighted sum of every input; a picture is read as in `Flatten`."""

    kind = "fc"
    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        _whole("outputs", self.outputs, minimum=1)
        _flag("bias", self.bias)

    def output_shape(self, shape: Shape) -> Shape:
        return (self.outputs,)

    def parameter_shapes(self, shape: Shape) -> dict[str, Shape]:
        shapes: dict[str, Shape] = {"weight": (self.outputs, math.prod(shape))}
        if self.bias:
            shapes["bias"] = (self.outputs,)
        return shapes

    def flops(self, shape: Shape) -> int:
        return 2 * self.outputs * math.prod(shape)

    @property
    def summary(self) -> str:
        return f"{self.outputs}" if self.bias else f"{self.outputs} no bias"


@dataclass(frozen=True)
class Softmax(Layer):
    """Scores into probabilities over all features of an image."""

    kind = "softmax"

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1:
            raise TilewrightError(
                f"needs a row of features, not {dimensions(shape)}: put Flatten or "
                "FullyConnected before it"
            )
        return shape


def _whole(what: str, value: object, *, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= LARGEST:
        shown = f"{value!r:.40}" if not isinstance(value, int) or abs(value) < 10**40 else "that"
        raise TilewrightError(
            f"{what} must be a whole number from {minimum} to {LARGEST}, not {shown}"
        )
    return value


def _flag(what: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise TilewrightError(f"{what} must be true or false, not {value!r}")
    return value


def _pair(what: str, value: object, *, minimum: int) -> tuple[int, int]:
    """One number for both directions, or (vertical, horizontal)."""
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise TilewrightError(f"{what} must be one number or two, not {value!r}")
        return _whole(what, value[0], minimum=minimum), _whole(what, value[1], minimum=minimum)
    number = _whole(what, value, minimum=minimum)
    return number, number


def _short(pair: tuple[int, int]) -> str:
    return str(pair[0]) if pair[0] == pair[1] else dimensions(pair)


def _picture(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise TilewrightError(f"needs a picture (channels, height, width), not {dimensions(shape)}")
    return shape[0], shape[1], shape[2]


def _windows(
    what: str, sizes: tuple[int, int], window: tuple[int, int], stride: tuple[int, int]
) -> tuple[int, int]:
    """How many windows fit along y and x."""
    if window[0] > sizes[0] or window[1] > sizes[1]:
        raise TilewrightError(
            f"{what} {dimensions(window)} is larger than its input {dimensions(sizes)}"
        )
    return (sizes[0] - window[0]) // stride[0] + 1, (sizes[1] - window[1]) // stride[1] + 1
