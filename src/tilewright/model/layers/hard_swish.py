"""Hard-swish: SiLU with straight lines instead of an exponential."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.base import Weights
from tilewright.model.layers.elementwise import Code, Elementwise, Values
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import DIVIDE_ULP, Array, Truth
from tilewright.precision import UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class HardSwish(Elementwise):
    """x times min(max(x + 3, 0), 6) / 6: below -1.5 it rises again."""

    kind = type = "hard_swish"
    words = "each value times a share between 0 and 1"
    steepest = 1.5
    fitting = (-30, 6)
    takes_huge = False  # six times as large is on the way
    cycles = 4

    @staticmethod
    def function(x: Values) -> Values:
        share: Values = np.minimum(np.maximum(x + np.float32(3), np.float32(0)), np.float32(6))
        return x * (share / np.float32(6))

    def ulp(self, precision: Precision) -> float:
        """A sum, a rounded sixth or a division, a product."""
        return 2 * (0.5 + DIVIDE_ULP + 0.5)

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """x / 6 + 1 / 2 may be the share, too: near -3, its terms are larger than it is."""
        found = super().truth(x, error, weights, precision)
        terms = np.where(np.abs(x) < 3 + error, 2 * UNIT * (np.abs(x) + error), 0.0)
        return Truth(found.value, found.bound + terms)

    def expression(self) -> str:
        return "x * ((x > 3.0f ? 6.0f : TW_MAX(x + 3.0f, 0.0f)) / 6.0f)"

    def llvm(self, f: Code, x: str) -> str:
        share = f.at_most(f.at_least(f.sum(x, f.constant(3)), 0), 6)
        return f.binary("fmul", x, f.binary("fmul", share, f.constant(1 / 6)))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return functional.hardswish

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("HardSwish"),)
