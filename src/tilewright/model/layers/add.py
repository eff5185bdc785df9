"""Sums of values at the same place: where a residual meets what it was left out of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

import numpy as np

from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.join import Join
from tilewright.model.layers.onnx_node import INPUTS, OnnxNode
from tilewright.model.layers.rounding import Truth, flushed, step
from tilewright.model.layers.sizes import Shape
from tilewright.precision import FLOAT32, UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Add(Join):
    """Inputs of the same shape, added up in any order."""

    kind = type = "add"
    words = "sums of values at the same place"
    forms = EVERY
    takes_huge = False  # sums would leave float32

    def flops(self, *shapes: Shape) -> int:
        return (len(shapes) - 1) * math.prod(shapes[0])

    def joined(self, inputs: Sequence[Truth], precision: Precision) -> Truth:
        """Roundings of all additions but the first operand's; none where sums are exact."""
        value = reduce(add, (each.value for each in inputs))
        error = reduce(add, (each.bound for each in inputs))
        magnitude = reduce(add, (np.abs(each.value) + each.bound for each in inputs))
        rounding = FLOAT32.sum_factor(len(inputs) - 1) * magnitude + flushed(value)
        if not error.any():
            unit = min(step(each.value) for each in inputs)
            rounding = np.where(magnitude * UNIT <= unit, 0.0, rounding)
        return Truth(value, error + rounding)

    def torch(self, *parameters: Tensor) -> Callable[..., Tensor]:
        return lambda *inputs: reduce(add, inputs)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Sum", inputs=(INPUTS,)),)

    @classmethod
    def joins(cls) -> list[tuple[tuple[Shape, ...], Join]]:
        return [
            (((1, 1, 1),) * 2, cls()),
            (((3, 5, 7),) * 2, cls()),
            (((17, 9, 16),) * 3, cls()),
            (((33,),) * 2, cls()),
        ]
