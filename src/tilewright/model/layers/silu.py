"""SiLU, or swish: a value times its logistic function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.base import Weights
from tilewright.model.layers.elementwise import Code, Elementwise, Values
from tilewright.model.layers.onnx_node import BEFORE, INPUT, OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, EXP_ULP, Array, Truth
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor

# Below it exp(-x) leaves float32, and x / (1 + exp(-x)) is zero but for less than 2**-120.
LEAST = -88.0


@dataclass(frozen=True)
class SiLU(Elementwise):
    """x / (1 + exp(-x)): below -1.28 it rises again, so that it does not keep order."""

    kind = type = "silu"
    words = "each value times its logistic function"
    steepest = 1.1
    fitting = (-30, 6)
    cycles = 21

    @staticmethod
    def function(x: Values) -> Values:
        return np.maximum(x, np.float32(LEAST)) / (np.float32(1) + np.exp(-x))

    def ulp(self, precision: Precision) -> float:
        """Of a power, a sum and a quotient; an ulp of each may be two of the product."""
        return 2 * (EXP_ULP + 0.5 + DIVIDE_ULP) + 0.5

    def smallest(self, precision: Precision) -> float:
        return 2.0**-120

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        found = super().truth(x, error, weights, precision)
        return Truth(found.value, found.bound + precision.sigmoid_error * (np.abs(x) + error))

    def expression(self) -> str:
        return f"TW_MAX(x, {LEAST}f) * TW_SIGMOID(x)"

    def llvm(self, f: Code, x: str) -> str:
        power = f.exp(f.binary("fsub", f.constant(0), x))
        return f.binary("fdiv", f.at_least(x, LEAST), f.sum(f.constant(1), power))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return functional.silu

    def onnx(self) -> tuple[OnnxNode, ...]:
        return OnnxNode("Sigmoid"), OnnxNode("Mul", inputs=(INPUT, BEFORE))
