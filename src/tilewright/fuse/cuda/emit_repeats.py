"""Steps that come again and again, but for where things lie: a loop over a table of places.

Of a deep network most layers are alike. Printed one after the other they are compiled one after the
other, and groups in different layers run out of instruction cache: twelve layers of 16 channels in
TF32 were 15,112 instructions, and are 6,088, for a third of the compiler's time (NVRTC 13.4).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Turns that are worth a loop. Of two the second is compiled for its own places, as it was.
LEAST_TURNS = 3
# In a call, as `own + 3904`; a struct's number is that of its layer.
PLACE = re.compile(r"(?<= \+ )\d+")
NUMBER = re.compile(r"\b(Layer|Border|Blank|Load)\d+")


class Printed(NamedTuple):
    """A step as text: structs of its constants, or tables, and its lines inside the kernel."""

    declared: list[str]
    lines: list[str]


def repeated(steps: Sequence[Printed]) -> list[Printed]:
    """The same, with loops in place of steps that are alike."""
    alike = [_without_places(each) for each in steps]
    made: list[Printed] = []
    at = 0
    while at < len(steps):
        length, turns = _repeats(alike[at:])
        end = at + length * turns
        if turns == 1:
            made.append(steps[at])
        else:
            starts = range(at, end, length)
            made.append(_loop([steps[start : start + length] for start in starts], len(made)))
        at = end
    return made


def _without_places(step: Printed) -> tuple[str, ...]:
    texts = (*step.declared, *(PLACE.sub("", line) for line in step.lines))
    return tuple(NUMBER.sub(r"\1", each) for each in texts)


def _repeats(alike: Sequence[tuple[str, ...]]) -> tuple[int, int]:
    """How many of the first steps come again, and how often: as much as a loop can take in."""
    found = 1, 1
    for length in range(1, len(alike) // LEAST_TURNS + 1):
        turns = 1
        while alike[turns * length : (turns + 1) * length] == alike[:length]:
            turns += 1
        if turns >= LEAST_TURNS and length * turns > found[0] * found[1]:
            found = length, turns
    return found


def _loop(turns: Sequence[Sequence[Printed]], number: int) -> Printed:
    """The first turn's text with a table's places in it, those that are not the same every time."""
    lines = [[line for step in turn for line in step.lines] for turn in turns]
    places = [[each for line in turn for each in PLACE.findall(line)] for turn in lines]
    columns = list(zip(*places, strict=True))
    moving = list(dict.fromkeys(each for each in columns if len(set(each)) > 1))
    declared = [text for step in turns[0] for text in step.declared]
    if moving:
        rows = ", ".join(f"{{{', '.join(row)}}}" for row in zip(*moving, strict=True))
        declared.append(f"__constant__ int places{number}[][{len(moving)}] = {{{rows}}};")
    left = iter(columns)

    def place(found: re.Match[str]) -> str:
        column = next(left)
        return f"places{number}[layer][{moving.index(column)}]" if column in moving else found[0]

    inside = [f"    {PLACE.sub(place, line)}" for line in lines[0]]
    head = ["#pragma unroll 1", f"for (int layer = 0; layer < {len(turns)}; ++layer) {{"]
    return Printed(declared, [*head, *inside, "}"])
