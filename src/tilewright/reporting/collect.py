"""All that a report needs and that is not there yet, measured part by part.

Rungs are proven and timed in turns, in this process; what is of one rung is measured in a process
of its own, one after the other. What compilers say of kernels is no measurement, and is asked for
all rungs at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from msgspec import structs

from tilewright import climb, environment
from tilewright.command import commanded
from tilewright.contest import Progress
from tilewright.data import drawn
from tilewright.measure.samples import usual_rounds
from tilewright.memory import DEVICE_PLANS
from tilewright.model.load import describe
from tilewright.reporting import measure
from tilewright.reporting.parts import Parts
from tilewright.reporting.process import elsewhere, started_ahead
from tilewright.reporting.remaining import (
    COUNTING,
    LOOPS,
    START,
    Expected,
    Remaining,
    duration,
    getting_ready,
)
from tilewright.reporting.wish import Wish, settled
from tilewright.results import climbed
from tilewright.results.ladder import LadderRecord
from tilewright.results.record import Record
from tilewright.results.run import RunRecord
from tilewright.rungs import find, rungs
from tilewright.runtime.device import CPU

SERIAL = "serial"
# From so many cores on, a process that starts is not in the way of one that is measured on a GPU.
ENOUGH_CORES = 4
NONE: Mapping[str, float] = {}
Make = Callable[[Progress], Sequence[Record]]
# Seconds that a run may take over more images than were asked for: through PoCL some rungs need
# minutes for 1,000.
LONGEST_RUN = 60.0


@dataclass(frozen=True)
class Part:
    """`seconds` are what it is expected to take. Of a run: whose, over how many images, and how
    many of them a second, if that is known, or at a guess.
    """

    name: str
    make: Make
    seconds: float
    label: str = ""
    images: int = 0
    rate: float | None = None
    guess: float | None = None


def collect(wishes: Sequence[Wish], parts: Parts, progress: Progress) -> list[Record]:
    """All records of a page; a ladder that cannot be climbed is an error."""
    names = [describe(wish.net).name for wish in wishes]
    records: list[Record] = []
    for wish, name in zip(map(settled, wishes), names, strict=True):
        found = _of_one(wish, parts, progress)
        if names.count(name) > 1:  # as with high and low weights for the same layers
            told = f"{name} ({Path(wish.net).stem})"
            found = [structs.replace(record, network=told) for record in found]
        records += found
    return records


def _of_one(wish: Wish, parts: Parts, progress: Progress) -> list[Record]:
    found = parts.get(wish, "ladder") or parts.put(
        wish, "ladder", [_ladder(wish, parts.done, progress)]
    )
    (ladder,) = (each for each in found if isinstance(each, LadderRecord))
    records: list[Record] = [ladder]
    timed = {row.rung: row.vendor for row, _ in ladder.timed}
    rates = {row.rung: time.images_per_second for row, time in ladder.timed}
    ahead = wish.device.kind == "cuda" and environment.cpu_cores() >= ENOUGH_CORES
    measured = [*_runs(wish, timed, ahead, rates), *_answers(wish, ladder, ahead)]
    kernels, profiles = [*_kernels(wish, timed)], [*_profiles(wish, ladder, ahead, rates)]
    beside, on_the_cpu = replace(wish, device=CPU), wish.milestone and wish.device.is_gpu
    guesses = {SERIAL: LOOPS / ladder.flop_an_image} if ladder.flop_an_image else {}
    loops = [*_runs(beside, _on_the_cpu(), guesses=guesses)] if on_the_cpu else []
    for of, asked in ((wish, [*measured, *kernels, *profiles]), (beside, loops)):
        known = [part for part in asked if not _too_long(of, part, part.rate or part.guess)]
        parts.expect(of, {part.name: part.seconds for part in known})
    parts.announce()
    with started_ahead() if ahead else nullcontext():
        for part in measured:
            records += _made(wish, part, parts, records, progress)
        records += _together(wish, parts, kernels, progress)
        for part in profiles:
            records += _made(wish, part, parts, records, progress)
    for part in loops:
        records += _made(beside, part, parts, records, progress)
    return records


def _made(
    wish: Wish, part: Part, parts: Parts, records: Sequence[Record], progress: Progress
) -> Sequence[Record]:
    """A part, unless it would take too long by what is known of it now."""
    seen = _rate(records, wish, part) if part.rate is None else part.rate
    why = _too_long(wish, part, seen)
    if why and parts.get(wish, part.name) is None:
        parts.leave_out(wish, part.name, why)
        return ()
    return parts.part(wish, part.name, partial(part.make, progress))


def _together(wish: Wish, parts: Parts, wanted: Sequence[Part], progress: Progress) -> list[Record]:
    """Parts that are no measurements: all that are missing are made at once."""
    found: list[Record] = []
    pool = ThreadPoolExecutor(environment.cpu_cores())
    begun = {
        part.name: pool.submit(part.make, lambda *now: None)
        for part in wanted
        if parts.get(wish, part.name) is None
    }

    def made(name: str) -> Sequence[Record]:
        return begun[name].result()

    try:
        for number, part in enumerate(wanted):
            progress("compiling kernels", number, len(wanted))
            found += parts.part(wish, part.name, partial(made, part.name))
    finally:
        pool.shutdown(cancel_futures=True)
    return found


def _rate(records: Sequence[Record], wish: Wish, part: Part) -> float | None:
    """Images a second of the last run of the same, if there was one."""
    found = [
        record.images_per_second for record in records
        if isinstance(record, RunRecord)
        and (record.device, record.label) == (str(wish.device), part.label)
    ]  # fmt: skip
    return found[-1] if found else None


def _too_long(wish: Wish, part: Part, rate: float | None) -> str:
    """Why a run is not even begun: it takes minutes, for more images than were asked for."""
    if rate is None or part.images <= wish.images:
        return ""
    seconds = part.images / rate
    command = " ".join(wish.command("run", part.label, part.images))
    return f"would take about {duration(seconds)}: {command}" if seconds > LONGEST_RUN else ""


def _ladder(wish: Wish, tell: Callable[[str], None], progress: Progress) -> LadderRecord:
    weights = None if wish.weights is None else str(wish.weights)
    subject = climb.prepare(wish.net, weights, wish.data, wish.images, or_all=True)
    watching = _Watching(wish, tell, progress)
    found = climb.climb(
        subject.network, subject.dataset.images, wish.device, wish.batch,
        wish.repeats or usual_rounds(wish.device), progress=watching.progress, audience=watching,
        short=not wish.full_proof, keep=True,
    )  # fmt: skip
    with commanded(wish.command("ladder", images=wish.images)[1:]):
        here = environment.fingerprint()
    return climbed.record(found, subject, wish.device, wish.batch, None, here)


@dataclass
class _Watching:
    """Tells of every rung that was proven, and that all are timed: a ladder takes minutes."""

    wish: Wish
    tell: Callable[[str], None]
    forward: Progress
    remaining: Remaining = field(default_factory=Remaining)
    ahead: int = 0

    def progress(self, doing: str, done: int, of: int) -> None:
        if doing.startswith("proving"):
            if not self.remaining.since:
                self.remaining.begin()
            self.ahead = of - done
        self.forward(doing, done, of)

    def proven(self, row: climb.Row) -> None:
        outcome = "is proven" if row.verdict and row.verdict.passed else "cannot be timed"
        self.remaining.done(Expected(1.0))
        left = self.remaining.words([Expected(1.0)] * (self.ahead - 1))
        self.tell(f"{self.wish.net} on {self.wish.device}: {row.name} {outcome}{left}")
        if self.ahead <= 1:
            self.tell(f"{self.wish.net} on {self.wish.device}: timing all in turns")

    def timed(self, name: str, seconds: float) -> None:
        pass


def _runs(
    wish: Wish, labels: Iterable[str], ahead: bool = False,
    rates: Mapping[str, float] = NONE, guesses: Mapping[str, float] = NONE,
) -> Iterator[Part]:  # fmt: skip
    """Every rung over every number of images; `rates` are images a second, where known."""
    for label in labels:
        rate, guess = rates.get(label), guesses.get(label)
        for images in wish.sizes:
            make = partial(elsewhere, measure.run, wish=wish, label=label, images=images)
            at_work = images / (rate or guess or math.inf)
            seconds = getting_ready(label, ahead) + at_work
            yield Part(f"run {label}, {images:,} images", make, seconds, label, images, rate, guess)


def _on_the_cpu() -> list[str]:
    """What the course asks for beside a GPU: the loops, and a framework."""
    able = [rung for rung in rungs(CPU) if rung.missing(CPU) is None]
    return [rung.label for rung in able if rung.name == SERIAL or rung.vendor]


def _answers(wish: Wish, ladder: LadderRecord, ahead: bool) -> Iterator[Part]:
    """To all images."""
    if wish.data != drawn.NAME and ladder.timed:
        label = _best(ladder)
        make = partial(elsewhere, measure.answered, wish=wish, label=label)
        yield Part("answers", make, getting_ready(label, ahead))


def _kernels(wish: Wish, timed: Mapping[str, bool]) -> Iterator[Part]:
    """What the compiler made of every rung of our own."""
    for label, vendor in timed.items():
        if not vendor and wish.device.is_gpu:
            make = partial(elsewhere, measure.kernels, wish=wish, label=label)
            yield Part(f"kernels {label}", make, START / environment.cpu_cores())  # all at once


def _profiles(
    wish: Wish, ladder: LadderRecord, ahead: bool, rates: Mapping[str, float]
) -> Iterator[Part]:
    """Every rung; and the first of our own under every memory plan, on a GPU. Timelines are of the
    first and the fastest of our own, and of memory plans.
    """
    own = [row.rung for row, _ in ladder.timed if not row.vendor]
    names: dict[str, tuple[str, str | None]] = {
        f"profile {row.rung}": (row.rung, None) for row, _ in ladder.timed
    }
    if wish.device.is_gpu:
        for label in own[:1]:
            for memory in find(label.partition(" ")[0]).memories:
                if memory != DEVICE_PLANS[0]:
                    names[f"profile {label} {memory}"] = (label, memory)
    for name, (label, plan) in names.items():
        shown = plan is not None or label in (*own[:1], _best(ladder))
        counted = wish.counters and label in own and plan is None
        make = partial(
            elsewhere, measure.profile, wish=wish, label=label, memory=plan, shown=shown,
            counted=counted,
        )  # fmt: skip
        repeated = (measure.PROFILE_REPEATS + 2) * wish.images / rates[label]
        seconds = getting_ready(label, ahead) + (COUNTING if counted else 0.0) + repeated
        yield Part(name, make, seconds)


def _best(ladder: LadderRecord) -> str:
    """The fastest rung of our own, or of anyone."""
    return min(ladder.ranked, key=lambda pair: (pair[0].vendor, pair[1].median_seconds))[0].rung
