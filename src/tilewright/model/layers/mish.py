"""Mish: a value times the hyperbolic tangent of the logarithm of 1 + exp(value)."""

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

# Below the first it is zero but for less than 2**-120; from the second on it is x in float32, and
# the square of exp(x) would leave it at twice that.
LEAST, MOST = -90.0, 20.0


@dataclass(frozen=True)
class Mish(Elementwise):
    """x n / (n + 2), where n is exp(x) (exp(x) + 2): the tangent of a logarithm is a quotient of
    powers. Below -1.19 it rises again, so that it does not keep order."""

    kind = type = "mish"
    words = "each value times a gate that opens with it"
    steepest = 1.1
    fitting = (-30, 6)
    cycles = 24

    @staticmethod
    def function(x: Values) -> Values:
        power = np.exp(np.minimum(x, np.float32(MOST)))
        gate = power * (power + np.float32(2))
        return np.maximum(x, np.float32(LEAST)) * (gate / (gate + np.float32(2)))

    def ulp(self, precision: Precision) -> float:
        """Two powers, two sums, three products; an ulp of one may be two of the next."""
        return 2 * (2 * EXP_ULP + 3) + DIVIDE_ULP

    def smallest(self, precision: Precision) -> float:
        return 2.0**-118

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        found = super().truth(x, error, weights, precision)
        return Truth(found.value, found.bound + precision.sigmoid_error * (np.abs(x) + error))

    def expression(self) -> str:
        power = f"TW_EXP(x > {MOST}f ? {MOST}f : x)"
        gate = f"{power} * ({power} + 2.0f)"
        return f"TW_MAX(x, {LEAST}f) * ({gate} / ({gate} + 2.0f))"

    def llvm(self, f: Code, x: str) -> str:
        two = f.constant(2)
        power = f.exp(f.at_most(x, MOST))
        gate = f.binary("fmul", power, f.sum(power, two))
        return f.binary("fmul", f.at_least(x, LEAST), f.binary("fdiv", gate, f.sum(gate, two)))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return functional.mish

    def onnx(self) -> tuple[OnnxNode, ...]:
        return OnnxNode("Softplus"), OnnxNode("Tanh"), OnnxNode("Mul", inputs=(INPUT, BEFORE))
