"""Events summed up as they come: one row for each kind, name and set of layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.trace import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Event,
    Kind,
    Moved,
    Size,
)

# What nvprof called them.
TITLES = {
    HOST_TO_DEVICE: "[memcpy HtoD]",
    DEVICE_TO_HOST: "[memcpy DtoH]",
    DEVICE_TO_DEVICE: "[memcpy DtoD]",
}
# Launch shapes of a row that are kept; the rest are only counted.
SHAPES = 8
NOT_SAID = Moved("", "")


@dataclass(frozen=True)
class Row:
    """Events of one kind and name, summed up; times in seconds, sizes in bytes.

    `count` is what the events stand for, where a record stands for several. `flops` and
    `least_bytes` are what the kernels had to do at least, None where that is not known, `loads` and
    `index_operations` more of it, as far as somebody counted. `shapes`
    are the launches' grids and blocks, `more_shapes` how many launches had yet others. `faulted` is
    how much of a kernel's time page faults were being served in. `array` is what copies are of and
    `place` the line that asks for them, `phase` the part of the start that it was in.
    """

    kind: Kind
    name: str
    layers: tuple[str, ...]
    calls: int
    seconds: float
    minimum: float
    maximum: float
    bytes: int = 0
    smallest: int = 0
    largest: int = 0
    count: int = 0
    flops: int | None = None
    least_bytes: int | None = None
    shapes: tuple[tuple[Size, Size], ...] = ()
    more_shapes: int = 0
    faulted: float = 0.0
    loads: float = 0.0
    index_operations: float = 0.0
    array: str = ""
    place: str = ""
    phase: str = ""

    @property
    def average(self) -> float:
        return self.seconds / self.calls


@dataclass
class _Sum:
    """A row in the making."""

    calls: int = 0
    seconds: float = 0.0
    minimum: float = float("inf")
    maximum: float = 0.0
    bytes: int = 0
    smallest: int = 1 << 62
    largest: int = 0
    count: int = 0
    flops: int = 0
    least_bytes: int = 0
    loads: float = 0.0
    index_operations: float = 0.0
    costed: int = 0  # events whose cost is known
    shapes: dict[tuple[Size, Size], None] = field(default_factory=dict)
    more_shapes: int = 0

    def add(self, event: Event) -> None:
        seconds = event.end - event.start
        self.calls += 1
        self.seconds += seconds
        if seconds < self.minimum:
            self.minimum = seconds
        if seconds > self.maximum:
            self.maximum = seconds
        self.bytes += event.bytes
        if event.bytes < self.smallest:
            self.smallest = event.bytes
        if event.bytes > self.largest:
            self.largest = event.bytes
        self.count += event.times
        if event.cost is not None:
            self.costed += 1
            self.flops += event.cost.flops
            self.least_bytes += event.cost.bytes
            self.loads += event.cost.loads
            self.index_operations += event.cost.index_operations
        if event.grid is not None and event.block is not None:
            shape = (event.grid, event.block)
            if shape in self.shapes or len(self.shapes) < SHAPES:
                self.shapes[shape] = None
            else:
                self.more_shapes += 1


class Tally:
    """A sink that keeps sums only: as many as there are different names, layers and arrays."""

    def __init__(self, phase: str = "") -> None:
        self.phase = phase
        self.sums: dict[tuple[Kind, str, tuple[str, ...], Moved], _Sum] = {}

    def __call__(self, event: Event) -> None:
        key = (event.kind, event.name, event.layers, event.moved or NOT_SAID)
        found = self.sums.get(key)
        if found is None:
            found = self.sums[key] = _Sum()
        found.add(event)

    def rows(self, faulted: Mapping[tuple[str, tuple[str, ...]], float]) -> tuple[Row, ...]:
        """In the order in which they were first seen. `faulted` is of kernels' names and layers."""
        return tuple(
            Row(
                kind, TITLES.get(name, name), layers, s.calls, s.seconds, s.minimum, s.maximum,
                s.bytes, s.smallest, s.largest, s.count,
                s.flops if s.costed == s.calls else None,
                s.least_bytes if s.costed == s.calls else None,
                tuple(s.shapes), s.more_shapes,
                faulted.get((name, layers), 0.0) if kind == "kernel" else 0.0,
                s.loads, s.index_operations, *moved, self.phase,
            )
            for (kind, name, layers, moved), s in self.sums.items()
        )  # fmt: skip


def by_name(rows: Iterable[Row]) -> list[Row]:
    """One row for each kind and name, with the layers of all; most expensive first."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.kind, row.name), []).append(row)
    return sorted(map(_together, groups.values()), key=lambda row: -row.seconds)


def _together(rows: list[Row]) -> Row:
    first = rows[0]
    if len(rows) == 1:
        return first
    known = all(row.flops is not None for row in rows)
    shapes = tuple(dict.fromkeys(shape for row in rows for shape in row.shapes))
    return Row(
        first.kind,
        first.name,
        tuple(dict.fromkeys(layer for row in rows for layer in row.layers)),
        sum(row.calls for row in rows),
        sum(row.seconds for row in rows),
        min(row.minimum for row in rows),
        max(row.maximum for row in rows),
        sum(row.bytes for row in rows),
        min(row.smallest for row in rows),
        max(row.largest for row in rows),
        sum(row.count for row in rows),
        sum(row.flops or 0 for row in rows) if known else None,
        sum(row.least_bytes or 0 for row in rows) if known else None,
        shapes,
        sum(row.more_shapes for row in rows),
        sum(row.faulted for row in rows),
        sum(row.loads for row in rows),
        sum(row.index_operations for row in rows),
    )
