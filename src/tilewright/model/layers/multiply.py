"""Products of values: a picture times another one, or times a gate for each channel or place."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.join import Join
from tilewright.model.layers.onnx_node import BEFORE, INPUT, INPUTS, SECOND, OnnxNode
from tilewright.model.layers.rounding import SMALLEST_NORMAL, Array, Truth, flushed
from tilewright.model.layers.sizes import Shape, dimensions
from tilewright.precision import UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor

# What a number of the second input is multiplied with.
Reach = Literal["value", "channel", "place"]


@dataclass(frozen=True)
class Multiply(Join):
    """Two inputs: values at the same place or, of a picture, all of a channel times one of as many
    numbers (a squeeze-and-excitation), or all channels of a place times one."""

    kind = type = "multiply"
    words = "products of values at the same place"
    forms = EVERY
    takes_huge = False  # products would leave float32

    @staticmethod
    def reach(shapes: Sequence[Shape]) -> Reach:
        """What a number of the second is for; TilewrightError if it is for nothing."""
        if len(shapes) != 2:
            raise TilewrightError(f"multiplies two inputs, not {len(shapes)}")
        first, second = shapes
        if second == first:
            return "value"
        if len(first) == 3 and second in ((first[0],), (first[0], 1, 1)):
            return "channel"
        if len(first) == 3 and second == (1, *first[1:]):
            return "place"
        raise TilewrightError(
            f"cannot multiply {dimensions(first)} by {dimensions(second)}: a number for each "
            "value, channel or place is needed"
        )

    def output_shape(self, *shapes: Shape) -> Shape:
        self.reach(shapes)
        return shapes[0]

    def flops(self, *shapes: Shape) -> int:
        return math.prod(shapes[0])

    def joined(self, inputs: Sequence[Truth], precision: Precision) -> Truth:
        """One rounding; none where the product of certain numbers is one of float32."""
        first, second = inputs
        a, b = first.value, _beside(first.value, second.value)
        a_off, b_off = first.bound, _beside(first.value, second.bound)
        value = a * b
        carried = np.abs(a) * b_off + np.abs(b) * a_off + a_off * b_off
        with np.errstate(over="ignore"):
            exact = (carried == 0) & (value.astype(np.float32) == value)
        rounding = np.where(exact, 0.0, UNIT * (np.abs(value) + carried))
        tiny = (np.abs(a) < SMALLEST_NORMAL) | (np.abs(b) < SMALLEST_NORMAL)
        return Truth(
            value, carried + rounding + flushed(value) + np.where(tiny, np.abs(value), 0.0)
        )

    def torch(self, *parameters: Tensor) -> Callable[..., Tensor]:
        def product(a: Tensor, b: Tensor) -> Tensor:
            return a * b.reshape(*b.shape, *[1] * (a.ndim - b.ndim))

        return product

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Mul", inputs=(INPUTS,)),)

    def onnx_of(self, shapes: Sequence[Shape]) -> tuple[OnnxNode, ...]:
        """A row gets the axes that a picture has more, or it would be one of places."""
        if len(shapes[0]) == len(shapes[1]):
            return self.onnx()
        return (
            OnnxNode("Unsqueeze", inputs=(SECOND,), whole=(2, 3)),
            OnnxNode("Mul", inputs=(INPUT, BEFORE)),
        )

    @classmethod
    def joins(cls) -> list[tuple[tuple[Shape, ...], Join]]:
        shapes: list[tuple[Shape, Shape]] = [
            ((17, 3, 5), (17, 3, 5)),
            ((33,), (33,)),
            ((18, 5, 3), (18, 1, 1)),
            ((5, 4, 7), (5,)),
            ((19, 3, 4), (1, 3, 4)),
        ]
        return [(each, cls()) for each in shapes]


def _beside(a: Array, b: Array) -> Array:
    """The second with the axes of the first, so that it is broadcast."""
    return b.reshape(*b.shape, *[1] * (a.ndim - b.ndim))
