"""ReLU6: negative values become zero, and large ones six."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.elementwise import Code, Elementwise, Values
from tilewright.model.layers.onnx_node import OnnxNode

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ReLU6(Elementwise):
    """max(0, min(x, 6))."""

    kind = type = "relu6"
    words = "what is negative becomes 0, what is larger than 6 becomes 6"
    keeps_order = True
    passes_negative = False
    fitting = (-30, 2)
    largest = 6.0
    cycles = 1

    @staticmethod
    def function(x: Values) -> Values:
        return np.minimum(np.maximum(x, np.float32(0)), np.float32(6))

    def expression(self) -> str:
        return "x > 6.0f ? 6.0f : TW_MAX(x, 0.0f)"

    def llvm(self, f: Code, x: str) -> str:
        return f.at_most(f.at_least(x, 0), 6)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        from torch.nn import functional

        return functional.relu6

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Clip", constants=(0.0, 6.0)),)
