"""What the proof saw of a kernel that is wrong: the numbers, not only a sentence.

`verify` gathers it, `diagnose` reads it. Nothing here knows a device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.model.network import Parameters, Stage
from tilewright.precision import Precision

Values = NDArray[np.float32]
Exact = NDArray[np.float64]
# What outputs hold before the kernel that is looked at once more: a number that no sum gives.
PREFILL = np.float32(777.2578125)
# Around inputs, outputs and all else: NaN each, but not the same one.
INPUT_POISON, OUTPUT_POISON, PARAMETER_POISON, SCRATCH_POISON, SHARED_POISON = (
    *(0x7FC0A5A5, 0x7FC05A5A, 0x7FC03C3C, 0x7FC06969, 0x7FC09696),
)


@dataclass(frozen=True)
class Damage:
    """Memory that changed and should not have: elements before a buffer, in it and behind it.

    `first` is the place of the first one, counted from the buffer's start.
    """

    buffer: str  # "input", "output", "weight", "bias" or the name of scratch
    before: int
    inside: int
    after: int
    first: int

    def __str__(self) -> str:
        outside = self.before or self.after or self.buffer == "output"
        what = f"wrote outside its {self.buffer}" if outside else f"changed its {self.buffer}"
        return f"the kernel {what}, {self.first} elements from the start"


@dataclass(frozen=True)
class Again:
    """The same kernel on the same input, twice more.

    `same`: in the same memory with the same content, so that all of it must be equal. `filled`:
    outputs hold PREFILL first, a number instead of NaN.
    """

    same: Values
    filled: Values


@dataclass(frozen=True, eq=False)
class Evidence:
    """One step of one call: what it was given, what it gave and what it should have given.

    All arrays are of the whole batch. `image` is the first that is wrong, None where outputs are
    right and something else is not. `earlier` is what the same step gave in the call before.
    """

    stages: tuple[Stage, ...]
    parameters: Parameters
    precision: Precision
    inputs: str
    call: int
    image: int | None
    given: NDArray[Any]
    expected: Exact
    bound: Exact
    got: Values
    again: Again | None = None
    earlier: Values | None = None
    damage: tuple[Damage, ...] = ()
    arrival: bool = False
    others: tuple[NDArray[Any], ...] = ()  # inputs after the first

    def __getstate__(self) -> dict[str, object]:
        """Plain: it may come from a process that proves a rung beside others."""
        return {**self.__dict__, "parameters": dict(self.parameters)}


@dataclass(frozen=True)
class Fault:
    """The first output found wrong, in a sentence, and all that was seen of it."""

    layer: str
    inputs: str
    problem: str
    evidence: Evidence | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.layer}, {self.inputs}: {self.problem}"
