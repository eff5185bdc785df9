"""Softplus: the logarithm of 1 + exp(x), a ReLU without its corner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.elementwise import Code, Elementwise, Values
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, EXP_ULP, LOG_ULP
from tilewright.precision import UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor

# log(1 + t) is twice the inverse hyperbolic tangent of z = t / (2 + t), which is no more than a
# third: so many terms of its series in the square of z leave out less than 2**-29 of it.
TERMS = 8


@dataclass(frozen=True)
class Softplus(Elementwise):
    """What is positive, and log(1 + exp(-|x|)): the power cannot leave float32."""

    kind = type = "softplus"
    words = "a ReLU without its corner"
    keeps_order = True
    fitting = (-30, 6)
    cycles = 30

    @staticmethod
    def function(x: Values) -> Values:
        return np.maximum(x, np.float32(0)) + np.log1p(np.exp(-np.abs(x)))

    def ulp(self, precision: Precision) -> float:
        """A power, a quotient and a logarithm, or the series in its place, and two sums; an ulp of
        one may be two of the next."""
        return 2 * (EXP_ULP + LOG_ULP + 2) + DIVIDE_ULP

    def smallest(self, precision: Precision) -> float:
        """Libraries add a small power to 1 before they take the logarithm."""
        return 2 * UNIT

    def expression(self) -> str:
        return "TW_MAX(x, 0.0f) + TW_LOG1P(TW_EXP(x < 0 ? x : -x))"

    def llvm(self, f: Code, x: str) -> str:
        size = f.maximum(x, f.binary("fsub", f.constant(0), x))
        power = f.exp(f.binary("fsub", f.constant(0), size))
        z = f.binary("fdiv", power, f.sum(power, f.constant(2)))
        square = f.binary("fmul", z, z)
        series = f.constant(1 / (2 * TERMS - 1))
        for odd in range(2 * TERMS - 3, 0, -2):
            series = f.fma(series, square, f.constant(1 / odd))
        return f.fma(f.binary("fmul", z, f.constant(2)), series, f.at_least(x, 0))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return functional.softplus

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Softplus"),)
