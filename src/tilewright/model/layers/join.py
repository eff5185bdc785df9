"""Layers that make one of several: what a network's branches end in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Layer
from tilewright.model.layers.forms import without
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import Truth
from tilewright.model.layers.sizes import Shape, dimensions
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Join(Layer):
    """Two inputs or more, in an order."""

    def output_shape(self, *shapes: Shape) -> Shape:
        """That of all of them, unless a kind has another rule."""
        for shape in shapes[1:]:
            if shape != shapes[0]:
                raise TilewrightError(
                    f"cannot {self.kind} {dimensions(shape)} to {dimensions(shapes[0])}: "
                    "shapes differ"
                )
        return shapes[0]

    def flops(self, *shapes: Shape) -> int:
        return 0

    def inside_flops(self, *shapes: Shape) -> int:
        return self.flops(*shapes)

    def joined(self, inputs: Sequence[Truth], precision: Precision) -> Truth:
        """The output for batches whose values are uncertain by their bounds."""
        raise without(self, "truth")

    def torch(self, *parameters: Tensor) -> Callable[..., Tensor]:
        """Of several tensors."""
        raise without(self, "torch")

    def onnx_of(self, shapes: Sequence[Shape]) -> tuple[OnnxNode, ...]:
        """The same as ONNX names it, of inputs of these shapes."""
        return self.onnx()

    @classmethod
    def joins(cls) -> list[tuple[tuple[Shape, ...], Join]]:
        """Layers to try alone, with the shapes of their inputs."""
        return []
