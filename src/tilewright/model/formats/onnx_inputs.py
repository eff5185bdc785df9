"""What a node of ONNX takes, and the draft that it adds to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.draft import Draft
from tilewright.model.formats.onnx_file import Node
from tilewright.model.formats.parts import Value

Known = Value | NDArray[Any]
Inputs = Sequence[Known | None]


@dataclass
class Building:
    """A draft, and what of the file its nodes must know."""

    draft: Draft
    opset: int
    batch: int
    output: str

    def sizes(self, value: Value) -> tuple[int, ...]:
        return self.batch, *self.draft.shape(value)


# Several values are several outputs.
Maker = Callable[[Building, Node, Inputs], Known | tuple[Value, ...]]


def value(inputs: Inputs, at: int = 0) -> Value:
    found = inputs[at] if at < len(inputs) else None
    if not isinstance(found, Value):
        raise TilewrightError(f"input {at + 1} does not depend on the image")
    return found


def constant(inputs: Inputs, at: int) -> NDArray[Any]:
    found = optional(inputs, at)
    if found is None:
        raise TilewrightError(f"input {at + 1} is missing")
    return found


def optional(inputs: Inputs, at: int) -> NDArray[Any] | None:
    found = inputs[at] if at < len(inputs) else None
    if isinstance(found, Value):
        raise TilewrightError(f"input {at + 1} is computed, where a constant is understood")
    return found


def flag(node: Node, name: str, default: int = 0) -> bool:
    """A setting that is 0 or 1: readers differ in what others mean."""
    found = node.attributes.get(name, default)
    if found not in (0, 1):
        raise TilewrightError(f"{name} is {found!r:.40}, where 0 or 1 is needed")
    return bool(found)


def numbers(node: Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    found = node.attributes.get(name, default)
    if not isinstance(found, tuple) or len(found) != len(default):
        raise TilewrightError(f"{name} has not {len(default)} numbers: not in two dimensions")
    return found


def parted(inputs: Inputs) -> tuple[list[Value], list[NDArray[Any]]]:
    values = [each for each in inputs if isinstance(each, Value)]
    return values, [each for each in inputs if isinstance(each, np.ndarray)]
