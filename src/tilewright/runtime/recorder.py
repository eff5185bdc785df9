"""How launches and copies become events of a trace: one way for all runtimes.

Work that the host does is over when the call is: its clock says when it was (`by_host`). A device
goes on by itself. What its library gives for a piece of work is kept with what the work was
(`remember`), and read after the device has been waited for (`settle`). Where a collector records
the device, it is told what the work is for, and nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any, Generic, Protocol, TypeVar

from tilewright.runtime import Result
from tilewright.trace import Cost, Event, Kind, Size, Trace, at_start, calling

# Pieces of work recorded before their times are read: a long run's do not pile up.
PENDING = 2000

Stamp = TypeVar("Stamp")


class Recorder(Generic[Stamp]):
    """The part of a runtime that records. A stamp is what times of work can be read from later."""

    def __init__(self) -> None:
        self.trace: Trace | None = at_start()
        self.pending: list[tuple[Stamp, Event]] = []

    def synchronise(self) -> None:
        """Wait until everything launched is done and recorded."""
        raise NotImplementedError

    def by_host(
        self, kind: Kind, name: str, layers: tuple[str, ...], size: int,
        work: Callable[..., Result], *arguments: object,
    ) -> Result:  # fmt: skip
        """Do some work of the host's."""
        trace = self.trace
        if trace is None:
            return work(*arguments)
        start = trace.now()
        result = work(*arguments)
        trace.add(Event(kind, name, start, trace.now(), layers, size))
        return result

    def remember(self, stamp: Stamp, event: Event) -> None:
        """Keep what was given to the device until its times are known."""
        assert self.trace is not None
        if not event.layers:  # a copy is for the layers whose step the host is in
            event = event._replace(layers=self.trace.inside)
        if event.kind == "copy":
            event = event._replace(moved=self.trace.moved)
        self.pending.append((stamp, event))
        if len(self.pending) >= PENDING:
            with self.trace.reading():
                self.synchronise()

    def unsettled(self) -> Trace | None:
        """The trace, if work is remembered that has no times yet; the device has been waited for.

        What a collector has recorded is in the trace by then.
        """
        if self.trace is not None and self.trace.collector is not None:
            self.trace.collector.collect()
        return self.trace if self.pending else None

    def settle(self, times: Callable[[], Iterable[tuple[float, float]]]) -> None:
        """Record all that is remembered; `times` are seconds of the trace, in the same order."""
        assert self.trace is not None
        with self.trace.reading():
            for (_, event), (start, end) in zip(self.pending, times(), strict=True):
                self.trace.add(event._replace(start=start, end=end))
            self.pending.clear()


class TimingEvent(Protocol):
    """A CUDA event, by whichever library."""

    def record(self, stream: Any, /) -> object:
        """Each library has streams of its own."""

    def synchronize(self) -> None: ...


class EventRecorder(Recorder[tuple[TimingEvent, TimingEvent]]):
    """Times are those of two CUDA events around each piece of work.

    After a copy, and after it has waited for the device, the host begins anew: `beginnings` are
    counted. The device is then held back by `lead` seconds (`tilewright.runtime.head_start`).
    """

    recording_disturbs: bool
    lead, beginnings, begun = 0.0, 0, False

    def __init__(self) -> None:
        super().__init__()
        self.spare: list[TimingEvent] = []  # making one takes longer than recording it

    def new_event(self) -> TimingEvent:
        raise NotImplementedError

    def elapsed(self, first: TimingEvent, last: TimingEvent) -> float:
        """Milliseconds between two events that were reached."""
        raise NotImplementedError

    def hold_back(self, seconds: float) -> None:
        """Keep the stream of kernels busy for about so long, without any record of it."""
        raise NotImplementedError

    def timed(
        self, stream: object, kind: Kind, name: str, layers: tuple[str, ...], size: int,
        work: Callable[[], Result], call: str = "", lane: str = "",
        grid: Size | None = None, block: Size | None = None, cost: Cost | None = None,
    ) -> Result:  # fmt: skip
        """Give a stream some work; `call` is what the host's part in it is called."""
        trace = self.trace
        if trace is None:
            return work()
        if trace.collector is not None:
            with trace.collector.about(layers or trace.inside, cost):
                return work()
        if kind == "kernel" and not self.begun:
            self.beginnings += 1
            if self.lead:
                self.hold_back(self.lead)
        self.begun = kind == "kernel"
        before, after = self._event(), self._event()
        before.record(stream)
        with calling(trace, call) if call else nullcontext(0) as number:
            result = work()
        after.record(stream)
        event = Event(kind, name, 0, 0, layers, size, grid, block, cost, lane, number)
        self.remember((before, after), event)
        return result

    def read_events(self, stream: object) -> None:
        """Place them on the host's clock; all but this stream has been waited for."""
        self.begun = False
        trace = self.unsettled()
        if trace is None:
            return
        last = self.new_event()
        last.record(stream)
        last.synchronize()
        now, stamps = trace.now(), [stamp for stamp, _ in self.pending]

        def when(event: TimingEvent) -> float:
            return now - 1e-3 * self.elapsed(event, last)

        self.settle(lambda: ((when(before), when(after)) for before, after in stamps))
        self.spare += [event for stamp in stamps for event in stamp]

    def _event(self) -> TimingEvent:
        return self.spare.pop() if self.spare else self.new_event()
