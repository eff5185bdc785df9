"""Leaky ReLU: negative values are multiplied by a small slope instead of becoming zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.elementwise import Code, Elementwise, Values, literal
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LeakyReLU(Elementwise):
    """x where it is positive, `slope` times x elsewhere."""

    kind = type = "leaky_relu"
    words = "what is negative is multiplied by a slope"
    cycles = 1
    slope: float = 0.01

    @property
    def keeps_order(self) -> bool:
        return self.slope >= 0

    @property
    def steepest(self) -> float:
        return max(1.0, abs(self.slope))

    @staticmethod
    def function(x: Values, slope: np.float32) -> Values:
        return np.maximum(x, np.float32(0)) + slope * np.minimum(x, np.float32(0))

    def ulp(self, precision: Precision) -> float:
        return 1  # of the product

    def expression(self) -> str:
        return f"x < 0 ? {literal(self.slope)} * x : x"

    def llvm(self, f: Code, x: str) -> str:
        scaled = f.binary("fmul", x, f.constant(self.slope))
        return f.select(f.below_zero(x), scaled, x)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return lambda x: functional.leaky_relu(x, self.slope)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("LeakyRelu", {"alpha": self.slope}),)
