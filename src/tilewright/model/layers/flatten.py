"""Flattening: no arithmetic, and nothing moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.model.layers.base import Layer, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Array, Truth
from tilewright.model.layers.sizes import Shape
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Flatten(Layer):
    """A picture read as one row of features, in the order channel, y, x: no arithmetic."""

    kind = type = "flatten"
    words = "the same values as one row"
    forms = EVERY
    computes = False
    passes_on = True

    def output_shape(self, shape: Shape) -> Shape:
        return (math.prod(shape),)

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        return Truth(x.reshape(len(x), -1), error.reshape(len(x), -1))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: x.flatten(1)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Flatten"),)
