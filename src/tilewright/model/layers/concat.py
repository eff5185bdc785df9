"""Channels of several pictures behind each other: where branches of an inception or a fire meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.join import Join
from tilewright.model.layers.onnx_node import INPUTS, OnnxNode
from tilewright.model.layers.rounding import Truth
from tilewright.model.layers.sizes import Shape, dimensions
from tilewright.precision import Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Concat(Join):
    """Pictures of the same height and width, or rows of features, one after the other."""

    kind = type = "concat"
    words = "channels of several inputs behind each other"
    forms = EVERY
    passes_on = True

    def output_shape(self, *shapes: Shape) -> Shape:
        for shape in shapes[1:]:
            if shape[1:] != shapes[0][1:]:
                raise TilewrightError(
                    f"cannot put {dimensions(shape)} behind {dimensions(shapes[0])}: "
                    "only channels may differ"
                )
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def joined(self, inputs: Sequence[Truth], precision: Precision) -> Truth:
        value = np.concatenate([each.value for each in inputs], axis=1)
        return Truth(value, np.concatenate([each.bound for each in inputs], axis=1))

    def torch(self, *parameters: Tensor) -> Callable[..., Tensor]:
        import torch

        return lambda *inputs: torch.cat(inputs, dim=1)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Concat", {"axis": 1}, inputs=(INPUTS,)),)

    @classmethod
    def joins(cls) -> list[tuple[tuple[Shape, ...], Join]]:
        return [
            (((1, 1, 1), (2, 1, 1)), cls()),
            (((3, 5, 7), (4, 5, 7)), cls()),
            (((17, 3, 4), (1, 3, 4), (15, 3, 4)), cls()),
            (((5,), (33,)), cls()),
        ]
