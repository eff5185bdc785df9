"""The profiler's job: load and build, time without recording, then record once more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright import environment
from tilewright.errors import TilewrightError
from tilewright.interrupts import held_back
from tilewright.job import Ready, Request, check_finite, make_ready
from tilewright.measure.samples import Sample, interleave, pause_before
from tilewright.precision import FLOAT32
from tilewright.profiling.ceilings import ceilings
from tilewright.profiling.order import Ordered
from tilewright.profiling.own_calls import WithoutOwnCalls
from tilewright.profiling.pages import Pages
from tilewright.profiling.result import Ceilings, Profile, layers_of
from tilewright.profiling.start import BEFORE
from tilewright.profiling.tally import Tally
from tilewright.profiling.wall import WallClock
from tilewright.runtime import DeviceFault
from tilewright.trace import Event, Trace

if TYPE_CHECKING:
    from tilewright.runtime.cupti import CuptiCollector

# Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
# Batches after which the device's events are waited for and passed on: all that is ever held.
SETTLE_BATCHES = 25
# Two clocks never agree quite: an event may seem to have begun so much earlier than it did.
SLACK_SECONDS = 0.01


@dataclass(frozen=True)
class Subject:
    """Something built and timed, ready to be recorded."""

    ready: Ready
    timed: Sample
    ceilings: Ceilings
    notices: tuple[str, ...]
    start: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Recording:
    """A profile, and what cut the run short, if anything did."""

    profile: Profile
    error: BaseException | None = None


def prepare(request: Request, repeats: int, progress: Progress) -> Subject:
    """Build and warm up what is asked for, measure its device, and time it without recording."""
    (subject,) = prepare_all([request], repeats, progress)
    return subject


def prepare_all(requests: Sequence[Request], repeats: int, progress: Progress) -> list[Subject]:
    """The same for several, which are timed in turns."""
    built = [_build(request, progress) for request in requests]

    def run(ready: Ready) -> None:
        doing, total = f"timing {ready.rung.label}", len(ready.dataset)
        ready.program(ready.dataset.images, None, lambda done: progress(doing, done, total))

    runs = {number: partial(run, ready) for number, (ready, *_) in enumerate(built)}
    pause = pause_before(ready.plan.device for ready, *_ in built)
    timed = interleave(runs, repeats, warmup=0, pause=pause)  # being built, they were warmed up
    return [
        Subject(ready, timed[number], found, notices, start)
        for number, (ready, found, notices, start) in enumerate(built)
    ]


def _build(
    request: Request, progress: Progress
) -> tuple[Ready, Ceilings, tuple[str, ...], tuple[tuple[str, float], ...]]:
    """What is asked for, its device's ceilings with what is wrong with them, and how it started."""
    progress(f"building {request.plan or request.rung or 'the fastest rung'}", 0, 1)
    before, trace = environment.usage().elapsed_seconds, Trace()
    ready = make_ready(request, trace, proving=lambda doing: progress(doing, 0, 1))
    phases = ((event.name, event.seconds) for event in trace.of("phase"))
    start = ((BEFORE, before), *phases)
    progress("measuring the device's ceilings", 0, 1)
    precision = ready.rung.precision
    # By a fast algorithm fewer operations are done than are counted: they are no share of a peak.
    counted = precision.name if precision.fast is None else FLOAT32.name
    found, problem = ceilings(ready.plan.device, ready.program.runtime.describe(), counted)
    if precision.fast is not None:
        found = replace(found, flops=None, precision=precision.name)
    return ready, found, (problem,) if problem else (), start


def record(
    subject: Subject,
    progress: Progress = lambda doing, done, of: None,
    timeline: Callable[[Event], None] | None = None,
) -> Recording:
    """Run once more, recorded. Ctrl-C or a fault of the device leave what was recorded so far."""
    return _Session(subject, progress, timeline).run()


@dataclass
class _Session:
    subject: Subject
    progress: Progress
    timeline: Callable[[Event], None] | None
    done: int = 0
    batches: int = 0
    notices: list[str] = field(default_factory=list)
    page_faults: int = 0

    def __post_init__(self) -> None:
        self.tally = Tally()
        self.trace = Trace(keep=False, detailed=True)
        self.notices += self.subject.notices
        self.collector, self.source = self._source()
        self.trace.collector = self.collector
        self.wall = WallClock(self.trace.now())
        writers = (self.timeline,) if self.timeline else ()
        self.pages = Pages(self.tally, self.wall, *writers)
        self.ordered = Ordered(WithoutOwnCalls(self.pages))
        self.trace.sinks = (self.ordered,)

    def run(self) -> Recording:
        ready, outputs = self.subject.ready, None
        error: BaseException | None = None
        before = environment.usage().page_faults
        try:
            outputs = ready.program(ready.dataset.images, self.trace, self._advance)
        except (KeyboardInterrupt, Exception) as stopped:
            if isinstance(stopped, TilewrightError) and not isinstance(stopped, DeviceFault):
                raise
            error = stopped
            self._wait()
        finally:
            self.page_faults = environment.usage().page_faults - before
            self.wall.stop(self.trace.now())
            try:
                with held_back():
                    self._finish()
            except KeyboardInterrupt as stopped:  # when all was recorded
                error = stopped
        return Recording(self._profile(outputs, error), error)

    def _finish(self) -> None:
        if self.collector is not None:
            self.collector.close()
            self.notices += self.collector.notices
        self.subject.ready.program.runtime.trace = None
        self.ordered.settle()

    def _wait(self) -> None:
        """For what was launched before the run was cut short: it is part of the profile."""
        try:
            self.subject.ready.program.runtime.synchronise()
        except (KeyboardInterrupt, Exception) as fault:  # somebody may not want to wait, either
            self.notices.append(f"the last records are lost: {_line(fault)}")

    def _advance(self, done: int) -> None:
        self.done = done
        self.batches += 1
        if self.batches % SETTLE_BATCHES == 0:
            begin = self.trace.now()
            with self.trace.reading():
                self.subject.ready.program.runtime.synchronise()
                self.ordered.settle(begin - SLACK_SECONDS)
        total = len(self.subject.ready.dataset)
        self.progress(f"recording {self.subject.ready.rung.label}", done, total)

    def _source(self) -> tuple[CuptiCollector | None, str]:
        """CUPTI on a CUDA GPU, if it lets us; otherwise the runtime's own times."""
        ready = self.subject.ready
        if ready.plan.device.kind == "cuda":
            from tilewright.runtime import cupti

            try:
                pages = None
                if ready.plan.memory == "managed":
                    assert isinstance(ready.program.runtime, cupti.HasPages)
                    pages = ready.program.runtime.shared_pages
                return cupti.CuptiCollector(self.trace, ready.plan.device.index, pages), cupti.CLOCK
            except cupti.Refused as refused:
                self.notices.append(f"no CUPTI, CUDA events instead: {refused}")
        if ready.plan.memory == "managed":
            self.notices.append(
                "page faults of a device and pages that move are counted by CUPTI alone, on CUDA: "
                "OpenCL does not tell of them, and PoCL, which is the CPU, has none"
            )
        return None, ready.program.runtime.clock

    def _profile(self, outputs: NDArray[np.float32] | None, error: BaseException | None) -> Profile:
        subject, ready = self.subject, self.subject.ready
        accuracy, labels = None, ready.dataset.labels
        if outputs is not None:
            outputs = outputs.reshape(len(outputs), -1)
            check_finite(outputs, ready.program, ready.dataset)
            accuracy = None if labels is None else float((outputs.argmax(1) == labels).mean())
        stopped = None
        if error is not None and outputs is None:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else _line(error)
            stopped = f"{why} after {self.done:,} of {len(ready.dataset):,} images"
        return Profile(
            network=ready.network.name,
            layers=layers_of(ready.network),
            data=ready.dataset.source,
            images=self.done,
            batch=ready.plan.batch,
            device=ready.plan.device,
            device_name=subject.ceilings.device,  # after a fault the device does not answer
            rung=ready.rung.label,
            idea=ready.rung.idea,
            memory=ready.plan.memory,
            source=self.source,
            rows=self.tally.rows(self.pages.faulted),
            wall=self.wall.finish(),
            timed=subject.timed.seconds,
            ceilings=subject.ceilings,
            accuracy=accuracy,
            dropped=self.collector.dropped if self.collector else 0,
            stopped=stopped,
            notices=tuple(self.notices),
            environment=environment.fingerprint(),
            skips_taps=ready.rung.skips_taps,
            start=subject.start,
            page_faults=self.page_faults,
        )


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
