"""Every output is a weighted sum of every input."""

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
from tilewright.model.layers.sizes import Shape, flag, whole
from tilewright.model.layers.sums import dense, few, weighted_sum
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class FullyConnected(Layer):
    """Every output is a weighted sum of every input; a picture is read as in `Flatten`."""

    kind = "fc"
    type = "fully_connected"
    words = "a fully connected layer: a sum over all inputs for each output"
    forms = EVERY
    outputs: int
    bias: bool = True

    def __post_init__(self) -> None:
        whole("outputs", self.outputs, minimum=1)
        flag("bias", self.bias)

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

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        places = few(weights["weight"].astype(np.float64))

        def products(values: Array, weight: Array) -> Array:
            return dense(values.reshape(len(values), -1), weight, places)

        return weighted_sum(products, x, error, weights, precision)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return lambda x: functional.linear(x.flatten(1), *parameters)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return OnnxNode("Flatten"), OnnxNode("Gemm", {"transB": 1}, takes_parameters=True)

    @classmethod
    def examples(cls) -> list[Example]:
        return [
            ((1, 1, 1), cls(1)),
            ((3, 5, 7), cls(15)),
            ((31, 1, 1), cls(16, bias=False)),
            ((15, 1, 1), cls(33)),
            ((16, 1, 1), cls(31)),
            ((33, 1, 1), cls(17)),
            ((32, 1, 1), cls(32)),
            ((17, 1, 1), cls(3)),
            ((64, 1, 1), cls(256, bias=False)),
            ((5000, 1, 1), cls(2)),
        ]

    @classmethod
    def drawn(cls, draw: Draw) -> list[Example]:
        return [((draw(1, 400), 1, 1), cls(draw(1, 70)))]
