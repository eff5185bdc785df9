"""Layers that come again, but for where things lie: a loop over a table of places.

Of a deep network most layers are alike. Printed one after the other they are compiled one after the
other, and groups in different layers run out of instruction cache: twelve layers of 16 channels in
TF32 were 15,112 instructions, and are 6,088, for a third of the compiler's time (NVRTC 13.4). What
lies between layers that are alike, as the first of a residual network's stage between those of two
stages, is in the loop as well: a turn chooses what it does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

# Layers less to compile that are worth a loop, and turns of it for each of them at most: a single
# one more is compiled for its own places, and the others' order is not looked up in a table.
LEAST_SAVED = 2
MOST_TURNS = 4
# In a call, as `own + 3904`, or at its end, which of several structs is meant.
PLACE = re.compile(r"(?<= \+ )\d+|(?<=, )\d+(?=\);$)")
TABLE = "layers"


class Turn(NamedTuple):
    """A layer's lines inside the kernel, and those until the next: zeros around what it gave, and
    barriers. Structs that say the same have the same name in them."""

    work: list[str]
    after: list[str]


class Looped(NamedTuple):
    """The table that a loop looks places up in, and the lines of all turns."""

    table: str
    lines: list[str]


def repeated(turns: Sequence[Turn]) -> Looped | None:
    """In a loop from the first that comes again to the last; None: too few do."""
    kinds = [_without_places(turn.work) for turn in turns]
    again = [at for at, kind in enumerate(kinds) if kinds.count(kind) > 1]
    first, end = (again[0], again[-1] + 1) if again else (0, 0)
    saved = end - first - len(set(kinds[first:end]))
    if saved < LEAST_SAVED or end - first > MOST_TURNS * saved:
        return None
    table, loop = _loop(turns[first:end])
    return Looped(table, [*lines_of(turns[:first]), *loop, *lines_of(turns[end:])])


def lines_of(turns: Sequence[Turn]) -> list[str]:
    return [line for turn in turns for line in (*turn.work, *turn.after)]


def _without_places(lines: Sequence[str]) -> tuple[str, ...]:
    return tuple(PLACE.sub("", line) for line in lines)


def _loop(turns: Sequence[Turn]) -> Looped:
    after, same = _apart([turn.after for turn in turns])
    work = _chosen([turn.work for turn in turns], 0)
    more = _chosen(after, len(work.rows[0]))
    rows = [[*one, *other] for one, other in zip(work.rows, more.rows, strict=True)]
    texts = ", ".join(f"{{{', '.join(row)}}}" for row in rows)
    return Looped(
        f"__constant__ int {TABLE}[][{len(rows[0])}] = {{{texts}}};",
        [
            "#pragma unroll 1",
            f"for (int layer = 0; layer < {len(turns)}; ++layer) {{",
            # What is made of it is not kept for all turns, in registers that none has left.
            '    asm volatile("" : "+r"(thread));',
            *(f"    {line}" for line in (*work.lines, *more.lines, *same)),
            "}",
        ],
    )


def _apart(texts: Sequence[list[str]]) -> tuple[list[list[str]], list[str]]:
    """Lines without those at the end that are the same in all of them, and these."""
    count = 0
    while min(map(len, texts)) > count and len({each[-1 - count] for each in texts}) == 1:
        count += 1
    ends = [len(each) - count for each in texts]
    return [each[:end] for each, end in zip(texts, ends, strict=True)], texts[0][ends[0] :]


class _Chosen(NamedTuple):
    """Lines for all turns, and what the table has for them: as many numbers for each turn."""

    lines: list[str]
    rows: list[list[str]]


def _chosen(texts: Sequence[list[str]], column: int) -> _Chosen:
    """Texts that differ in places alone are one; of several a turn chooses. `column` is the first
    of the table that is free."""
    kinds = [_without_places(each) for each in texts]
    different = list(dict.fromkeys(kinds))
    several = len(different) > 1
    rows = [[str(different.index(kind))] if several else [] for kind in kinds]
    lines: list[str] = []
    for number, kind in enumerate(different):
        own = [at for at, each in enumerate(kinds) if each == kind]
        found, places = _looked_up([texts[at] for at in own], column + several)
        for at, each in zip(own, places, strict=True):
            rows[at] += each
        if several and found:
            lines += [f"case {number}:", *(f"    {line}" for line in found), "    break;"]
        else:
            lines += found
    if several:
        lines = [f"switch ({TABLE}[layer][{column}]) {{", *lines, "}"]
    width = max(map(len, rows))
    return _Chosen(lines, [[*row, *["0"] * (width - len(row))] for row in rows])


def _looked_up(texts: Sequence[list[str]], column: int) -> tuple[list[str], list[list[str]]]:
    """The first of texts with the table's places in it, those that are not the same every time; and
    each text's own."""
    places = [[each for line in text for each in PLACE.findall(line)] for text in texts]
    columns = list(zip(*places, strict=True))
    moving = list(dict.fromkeys(each for each in columns if len(set(each)) > 1))
    left = iter(columns)

    def place(found: re.Match[str]) -> str:
        each = next(left)
        return f"{TABLE}[layer][{column + moving.index(each)}]" if each in moving else found[0]

    lines = [PLACE.sub(place, line) for line in texts[0]]
    return lines, [[each[at] for each in moving] for at in range(len(texts))]
