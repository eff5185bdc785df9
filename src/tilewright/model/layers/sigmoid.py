"""The logistic function: any value into one between 0 and 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.elementwise import Code, Elementwise, Values
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, EXP_ULP, SMALLEST_NORMAL
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sigmoid(Elementwise):
    """1 / (1 + exp(-x))."""

    kind = type = "sigmoid"
    words = "each value into one between 0 and 1"
    keeps_order = True
    steepest = 0.25
    fitting = (-30, 3)
    largest = 1.0
    cycles = 20

    @staticmethod
    def function(x: Values) -> Values:
        return np.float32(1) / (np.float32(1) + np.exp(-x))

    def ulp(self, precision: Precision) -> float:
        """An ulp of exp, or half of one of the sum, may be two of the quotient."""
        return 2 * (EXP_ULP + 0.5) + DIVIDE_ULP

    def smallest(self, precision: Precision) -> float:
        return SMALLEST_NORMAL + precision.sigmoid_error

    def expression(self) -> str:
        return "TW_SIGMOID(x)"

    def llvm(self, f: Code, x: str) -> str:
        negative = f.binary("fsub", f.constant(0), x)
        return f.binary("fdiv", f.constant(1), f.sum(f.constant(1), f.exp(negative)))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        import torch

        return torch.sigmoid

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Sigmoid"),)
