"""The hyperbolic tangent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.elementwise import Code, Elementwise, Values
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import SMALLEST_NORMAL
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Tanh(Elementwise):
    kind = type = "tanh"
    words = "the hyperbolic tangent of each value"
    keeps_order = True
    fitting = (-30, 3)
    largest = 1.0
    cycles = 25  # some 30 operations

    @staticmethod
    def function(x: Values) -> Values:
        return np.tanh(x)

    def ulp(self, precision: Precision) -> float:
        return precision.tanh_ulp

    def smallest(self, precision: Precision) -> float:
        return SMALLEST_NORMAL + precision.tanh_error

    def expression(self) -> str:
        return "TW_TANH(x)"

    def llvm(self, f: Code, x: str) -> str:
        return f.tanh(x)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        import torch

        return torch.tanh

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Tanh"),)
