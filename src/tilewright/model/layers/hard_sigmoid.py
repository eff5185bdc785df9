"""The hard sigmoid: a straight line cut off at zero and one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.base import Weights
from tilewright.model.layers.elementwise import Code, Elementwise, Values, literal
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Array, Truth
from tilewright.precision import UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class HardSigmoid(Elementwise):
    """min(max(slope x + shift, 0), 1); as it is set, min(max(x + 3, 0), 6) / 6."""

    kind = type = "hard_sigmoid"
    words = "each value into one from 0 to 1, by straight lines"
    fitting = (-30, 3)
    largest = 1.0
    cycles = 3
    slope: float = 1 / 6
    shift: float = 0.5

    @property
    def keeps_order(self) -> bool:
        return self.slope >= 0

    @property
    def steepest(self) -> float:
        return abs(self.slope)

    @staticmethod
    def function(x: Values, slope: np.float32, shift: np.float32) -> Values:
        line = slope * x + shift
        return np.minimum(np.maximum(line, np.float32(0)), np.float32(1))

    def ulp(self, precision: Precision) -> float:
        return 1

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """A product or a division by a sixth's like, and a sum, whose terms may be larger than it
        is. What is beyond the ends of the line is exact."""
        found = super().truth(x, error, weights, precision)
        slope, shift = map(float, self.settings)
        terms = np.abs(slope) * (np.abs(x) + error) + np.abs(shift)
        line = np.abs(slope * x + shift - 0.5) - abs(slope) * error
        return Truth(found.value, found.bound + np.where(line < 0.51, 4 * UNIT * terms, 0.0))

    def expression(self) -> str:
        line = f"TW_FMA({literal(self.slope)}, x, {literal(self.shift)})"
        return f"{line} > 1.0f ? 1.0f : TW_MAX({line}, 0.0f)"

    def llvm(self, f: Code, x: str) -> str:
        line = f.fma(f.constant(self.slope), x, f.constant(self.shift))
        return f.at_most(f.at_least(line, 0), 1)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        import torch

        slope, shift = map(float, self.settings)
        return lambda x: torch.clamp(x * slope + shift, 0, 1)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("HardSigmoid", {"alpha": self.slope, "beta": self.shift}),)
