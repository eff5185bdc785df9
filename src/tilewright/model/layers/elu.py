"""ELU: negative values follow an exponential to a constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.elementwise import Code, Elementwise, Values, literal
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import EXP_ULP, SMALLEST_NORMAL
from tilewright.precision import UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ELU(Elementwise):
    """x where it is positive, `alpha` times exp(x) - 1 elsewhere."""

    kind = type = "elu"
    words = "what is negative follows an exponential"
    fitting = (-30, 6)
    cycles = 18
    alpha: float = 1.0

    @property
    def keeps_order(self) -> bool:
        return self.alpha >= 0

    @property
    def steepest(self) -> float:
        return max(1.0, abs(self.alpha))

    @staticmethod
    def function(x: Values, alpha: np.float32) -> Values:
        return np.maximum(x, np.float32(0)) + alpha * np.expm1(np.minimum(x, np.float32(0)))

    def ulp(self, precision: Precision) -> float:
        """Of a difference and a product."""
        return 2

    def smallest(self, precision: Precision) -> float:
        """A power next to 1 is off by so much, and so is what is left when 1 is taken away."""
        return abs(self.alpha) * EXP_ULP * 2 * UNIT + SMALLEST_NORMAL

    def expression(self) -> str:
        return f"x > 0 ? x : {literal(self.alpha)} * (TW_EXP(x) - 1.0f)"

    def llvm(self, f: Code, x: str) -> str:
        power = f.binary("fsub", f.exp(x), f.constant(1))
        return f.select(f.below_zero(x), f.binary("fmul", f.constant(self.alpha), power), x)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return lambda x: functional.elu(x, self.alpha)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Elu", {"alpha": self.alpha}),)
