"""Channels of several pictures behind each other, as a kernel of its own."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.passing import Passing, whole_words
from tilewright.model.layers import Concat

AT_ONCE = 4  # reads of a thread


@dataclass(frozen=True)
class Behind(Passing):
    """A kernel's plan; sizes are words of a pixel."""

    turns = AT_ONCE
    busy_cycles = 0

    @property
    def parts(self) -> tuple[int, ...]:
        """Of each picture."""
        return tuple(self.arithmetic.words(channels) for channels, _, _ in self.operation.shapes)

    @property
    def begins(self) -> tuple[int, ...]:
        """Where each picture begins, and all end."""
        return tuple(itertools.accumulate(self.parts, initial=0))

    @property
    def width(self) -> int:
        return math.gcd(4, *self.parts)

    @property
    def pixels(self) -> int:
        return math.prod(self.operation.result[1:])


def behind(arithmetic: Arithmetic, operation: Operation) -> Behind | None:
    """The plan, if there is such a kernel."""
    can_be = (
        operation.kind == "join"
        and isinstance(operation.stages[0].layer, Concat)
        and whole_words(arithmetic, operation)
        and all(shape[1:] == operation.result[1:] for shape in operation.shapes)
    )
    return Behind(arithmetic, operation) if can_be else None
