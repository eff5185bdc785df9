"""ReLU: negative values become zero."""

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
class ReLU(Elementwise):
    kind = type = "relu"
    words = "what is negative becomes 0"
    keeps_order = True
    passes_negative = False

    @staticmethod
    def function(x: Values) -> Values:
        return np.maximum(x, np.float32(0))

    def expression(self) -> str:
        return "TW_MAX(x, 0.0f)"

    def llvm(self, f: Code, x: str) -> str:
        return f.at_least(x, 0)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        import torch

        return torch.relu

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Relu"),)
