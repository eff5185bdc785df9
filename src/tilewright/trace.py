"""What happened, as a flat list of events. Every table, chart and JSON is a view of a trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["phase", "kernel", "copy"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened, in seconds since the trace began.

    A `phase` is a part of the job; a `kernel` is one piece of computation on a device and
    names the layers it computed (several, when they were fused); a `copy` moved `bytes`.
    """

    kind: Kind
    name: str
    start: float
    end: float
    layers: tuple[str, ...] = ()
    bytes: int = 0

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass
class Trace:
    """The one record of a run. `clock` is injected by tests."""

    clock: Callable[[], float] = time.perf_counter
    events: list[Event] = field(default_factory=list)
    origin: float = field(init=False)

    def __post_init__(self) -> None:
        self.origin = self.clock()

    def now(self) -> float:
        """Seconds since the trace began."""
        return self.clock() - self.origin

    def add(self, event: Event) -> None:
        self.events.append(event)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what happens inside as a phase, also when it fails."""
        start = self.now()
        try:
            yield
        finally:
            self.add(Event("phase", name, start, self.now()))

    def of(self, kind: Kind) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def phase_seconds(self, name: str) -> float:
        return sum(event.seconds for event in self.of("phase") if event.name == name)


def busy_seconds(events: Iterable[Event]) -> float:
    """How long at least one of the events was going on: what overlaps counts once."""
    busy, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.start):
        busy += max(0.0, event.end - max(until, event.start))
        until = max(until, event.end)
    return busy
