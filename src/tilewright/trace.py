"""What happened, as events. Every table, chart, timeline and JSON is a view of a trace."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from tilewright.interrupts import held_back

Kind = Literal["phase", "layer", "kernel", "host", "copy", "memset", "unified", "api", "profiler"]
Size = tuple[int, int, int]

# Names of copies, and of what shared memory does. Sources agree on them, so that views need not
# know the source.
HOST_TO_DEVICE, DEVICE_TO_HOST = "host to device", "device to host"
DEVICE_TO_DEVICE = "device to device"
PAGES_TO_DEVICE, PAGES_TO_HOST = f"pages {HOST_TO_DEVICE}", f"pages {DEVICE_TO_HOST}"
PAGES_BETWEEN_DEVICES = f"pages {DEVICE_TO_DEVICE}"
MOVING = (PAGES_TO_DEVICE, PAGES_TO_HOST, PAGES_BETWEEN_DEVICES)
GPU_FAULTS, CPU_FAULT = "GPU page-fault group", "CPU page fault"


@dataclass(frozen=True, slots=True)
class Cost:
    """What a kernel has to do at least: operations, and bytes if every buffer is touched once.

    `loads` are its threads', from device and shared memory; `index_operations` those on whole
    numbers, where it works out places as it goes. 0 where nobody counted.
    """

    flops: int
    bytes: int
    loads: float = 0.0
    index_operations: float = 0.0


class Moved(NamedTuple):
    """What a copy moves: an array by its name, and the line of the program that asks for it."""

    array: str
    place: str


class Event(NamedTuple):
    """One thing that happened, in seconds since the trace began.

    A `phase` is a part of the job, a `layer` the host's time in a step of the plan. A `kernel` is
    one piece of computation on a device and names the layers it computed (several, when they were
    fused); a `host` event is such a piece that the host did for a device. A `copy` moved `bytes`
    and a `memset` filled them; `unified` is the doing of memory shared by host and device: pages
    that moved, faults. An `api` event is a call of the host into a device's library, `profiler` the
    time in which records of a device's work were read.

    `cost` is a kernel's, where it is known. `lane` is the stream or thread it was on. A call and
    the work it started have the same `correlation`. `times` is how often it happened, where a
    record stands for several. `moved` is what a copy is of, where that was said.
    """

    kind: Kind
    name: str
    start: float
    end: float
    layers: tuple[str, ...] = ()
    bytes: int = 0
    grid: Size | None = None
    block: Size | None = None
    cost: Cost | None = None
    lane: str = ""
    correlation: int = 0
    times: int = 1
    moved: Moved | None = None

    @property
    def seconds(self) -> float:
        return self.end - self.start


class Collector(Protocol):
    """What records a device's work in the runtime's place, and adds it to a trace."""

    def about(
        self, layers: tuple[str, ...], cost: Cost | None = None
    ) -> AbstractContextManager[None]:
        """Whatever the host starts inside is for these layers."""

    def collect(self) -> None:
        """Add everything recorded so far; the device has just been synchronised."""


@dataclass
class Trace:
    """The one record of a run. `clock` is injected by tests.

    Every event goes to every sink. A long run is not kept (`keep`): its sinks count and write.
    A `detailed` trace has the host's side too: the layers it reaches and the calls it makes.
    """

    clock: Callable[[], float] = time.perf_counter
    events: list[Event] = field(default_factory=list)
    origin: float = field(init=False)
    keep: bool = True
    detailed: bool = False
    sinks: tuple[Callable[[Event], None], ...] = ()
    collector: Collector | None = None
    inside: tuple[str, ...] = ()  # the layers whose step the host is in
    moved: Moved | None = None  # what is being copied
    called: float = 0.0  # when the last call began
    readings: int = 0  # of records that are going on, one inside the other
    correlations: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.origin = self.clock()

    def now(self) -> float:
        """Seconds since the trace began."""
        return self.clock() - self.origin

    def add(self, event: Event) -> None:
        if self.keep:
            self.events.append(event)
        for sink in self.sinks:
            sink(event)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Record what happens inside as a phase, also when it fails."""
        start = self.now()
        try:
            yield
        finally:
            self.add(Event("phase", name, start, self.now()))

    @contextmanager
    def layer(self, layers: tuple[str, ...]) -> Iterator[None]:
        """Record what happens inside as these layers' step; copies inside are theirs."""
        self.inside, start = layers, self.now()
        try:
            yield
        finally:
            self.inside = ()
            self.add(Event("layer", _span(layers), start, self.now(), layers))

    @contextmanager
    def moving(self, what: Moved) -> Iterator[None]:
        """Copies inside are of this."""
        before, self.moved = self.moved, what
        try:
            yield
        finally:
            self.moved = before

    @contextmanager
    def call(self, name: str) -> Iterator[int]:
        """Record what happens inside as a call into a device's library; gives its correlation."""
        number = next(self.correlations)
        self.called = start = self.now()
        try:
            yield number
        finally:
            self.add(
                Event("api", name, start, self.now(), self.inside, correlation=number, lane="host")
            )

    @contextmanager
    def reading(self) -> Iterator[None]:
        """What happens inside is not the run's, but its recording's. Ctrl-C waits for its end."""
        with held_back():
            start = self.now()
            self.readings += 1
            try:
                yield
            finally:
                self.readings -= 1
                if self.detailed and not self.readings:
                    self.add(Event("profiler", "reading records", start, self.now()))

    def of(self, *kinds: Kind) -> list[Event]:
        return [event for event in self.events if event.kind in kinds]

    def phase_seconds(self, name: str) -> float:
        return sum(event.seconds for event in self.of("phase") if event.name == name)


def reaching(trace: Trace | None, layers: tuple[str, ...]) -> AbstractContextManager[None]:
    """The host is in these layers' step, if anybody wants to know."""
    return _NOTHING if trace is None or not trace.detailed else trace.layer(layers)


def moving(trace: Trace | None, array: str) -> AbstractContextManager[None]:
    """Copies inside are of this array and asked for by the line of the caller's, if anybody wants
    to know.
    """
    if trace is None or not trace.detailed:
        return _NOTHING
    here = sys._getframe(1)
    return trace.moving(Moved(array, f"{Path(here.f_code.co_filename).stem}:{here.f_lineno}"))


def calling(trace: Trace | None, name: str) -> AbstractContextManager[int]:
    """The host makes a call of the run, if anybody wants to know and no collector sees it."""
    if trace is None or not trace.detailed or trace.readings or trace.collector is not None:
        return _NO_CALL
    return trace.call(name)


@contextmanager
def starting(trace: Trace) -> Iterator[None]:
    """Devices that are opened inside record into this trace from their first call on."""
    before = _starting.set(trace)
    try:
        yield
    finally:
        _starting.reset(before)


def at_start() -> Trace | None:
    """The trace of a program's start, where somebody wants to know of it."""
    return _starting.get()


def busy_seconds(events: Iterable[Event]) -> float:
    """How long at least one of the events was going on: what overlaps counts once."""
    busy, until = 0.0, float("-inf")
    for event in sorted(events, key=lambda event: event.start):
        busy += max(0.0, event.end - max(until, event.start))
        until = max(until, event.end)
    return busy


_starting: ContextVar[Trace | None] = ContextVar("starting", default=None)
# Both can be entered any number of times, and cost nothing to make.
_NOTHING, _NO_CALL = nullcontext(), nullcontext(0)


def _span(layers: tuple[str, ...]) -> str:
    """One layer by its name, several by the first and the last."""
    return layers[0] if len(layers) == 1 else f"{layers[0]}..{layers[-1]}"
