"""What a call of an exported program is given, as the readers of PyTorch's operators ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.formats.draft import Draft
from tilewright.model.formats.parts import Value
from tilewright.model.formats.torch_file import Call

Given = Mapping[str, Any]


class Building:
    """A draft, and what of the program its calls must know."""

    def __init__(self, draft: Draft, batch: int, output: str) -> None:
        self.draft, self.batch, self.output = draft, batch, output

    def sizes(self, value: Value) -> tuple[int, ...]:
        return self.batch, *self.draft.shape(value)


Maker = Callable[[Building, Call, Given], Any]


def value(given: Given, name: str = "self") -> Value:
    found = given.get(name)
    if not isinstance(found, Value):
        raise TilewrightError(f"{name} does not depend on the image")
    return found


def constant(given: Given, name: str) -> NDArray[Any]:
    found = optional(given, name)
    if found is None:
        raise TilewrightError(f"{name} is missing")
    return found


def optional(given: Given, name: str) -> NDArray[Any] | None:
    found = given.get(name)
    if isinstance(found, Value):
        raise TilewrightError(f"{name} is computed, where a constant is understood")
    return None if found is None else np.asarray(found)
