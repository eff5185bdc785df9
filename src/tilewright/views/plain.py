"""A table as files have it: plain numbers in seconds and bytes, each with its unit beside it.

Words that stand among numbers have a column of their own. Of a list of facts, every number has a
row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.views.table import NOTHING, Column, Kind, Listed, Table
from tilewright.views.units import Quantity

Value = str | float | int | None


@dataclass(frozen=True)
class PlainColumn:
    """`unit` is empty where numbers have none, or the name has it."""

    name: str
    kind: Kind
    unit: str
    values: list[Value]


def columns(table: Table) -> list[PlainColumn]:
    if not table.headed:
        return _facts(table)
    pairs = enumerate(table.columns)
    return [made for place, column in pairs for made in _plain(column, table.cells(place))]


def _plain(column: Column, cells: Sequence[str]) -> Iterator[PlainColumn]:
    name = " ".join(column.heading.split())
    if column.kind == "text":
        yield PlainColumn(name, "text", "", [_words(cell) for cell in cells])
        return
    numbers = [cell if isinstance(cell, Quantity) else None for cell in cells]
    found = {number.unit for number in numbers if number is not None}
    if len(found) > 1:
        raise ValueError(f"numbers of column {name!r} have units {sorted(found)}")
    unit = next(iter(found), "")
    values: list[Value] = [None if number is None else number.value for number in numbers]
    yield PlainColumn(name, column.kind, "" if unit in name.split() else unit, values)
    words = [None if isinstance(cell, Quantity) else _words(cell) for cell in cells]
    if any(words):
        yield PlainColumn(f"{name} in words", "text", "", [*words])


def _facts(table: Table) -> list[PlainColumn]:
    """A row for each number, and one for each fact that is in words."""
    rows: list[tuple[Value, Value, Value, Value]] = []
    for name, cell in table.rows:
        if isinstance(cell, Quantity):
            rows.append((name, cell.value, cell.unit or None, None))
        elif isinstance(cell, Listed):
            rows += [(f"{name}: {part}", x.value, x.unit or None, None) for part, x in cell.parts]
        else:
            rows.append((name, None, None, _words(cell)))
    kinds: tuple[tuple[str, Kind], ...] = (
        ("name", "text"), ("value", "number"), ("unit", "text"), ("in words", "text"),
    )  # fmt: skip
    return [
        PlainColumn(name, kind, "", [row[place] for row in rows])
        for place, (name, kind) in enumerate(kinds)
    ]


def _words(cell: str) -> str | None:
    """Lines that were broken to fit are whole again."""
    return None if cell in NOTHING else " ".join(cell.split())
