"""All that a report needs and that is not there yet, measured part by part.

Rungs are proven and timed in turns, in this process; what is of one rung is measured in a process
of its own, one after the other. What compilers say of kernels is no measurement, and is asked for
all rungs at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from msgspec import structs

from tilewright import climb, environment
from tilewright.command import commanded
from tilewright.contest import Progress
from tilewright.errors import TilewrightError
from tilewright.measure.samples import usual_rounds
from tilewright.model.load import describe, load_parameters
from tilewright.reporting import asked
from tilewright.reporting.asked import Part
from tilewright.reporting.parts import Parts
from tilewright.reporting.process import started_ahead
from tilewright.reporting.remaining import (
    LOOPS,
    Expected,
    Remaining,
    duration,
)
from tilewright.reporting.wish import Wish, settled
from tilewright.results import climbed
from tilewright.results.ladder import LadderRecord
from tilewright.results.record import Record
from tilewright.results.run import RunRecord
from tilewright.runtime.device import CPU

# From so many cores on, a process that starts is not in the way of one that is measured on a GPU.
ENOUGH_CORES = 4
# Seconds that a run may take over more images than were asked for: through PoCL some rungs need
# minutes for 1,000.
LONGEST_RUN = 60.0


def collect(wishes: Sequence[Wish], parts: Parts, progress: Progress) -> list[Record]:
    """All records of a page; a ladder that cannot be climbed is an error."""
    names = [_with_weights(wish) for wish in wishes]
    records: list[Record] = []
    for wish, name in zip(map(settled, wishes), names, strict=True):
        found = _of_one(wish, parts, progress)
        if names.count(name) > 1:  # as with high and low weights for the same layers
            told = f"{name} ({Path(wish.net).stem})"
            found = [structs.replace(record, network=told) for record in found]
        records += found
    return records


def _with_weights(wish: Wish) -> str:
    """A network's name; runs of it are refused without weights, and better now than one by one."""
    network = load_parameters(describe(wish.net), wish.net, wish.weights)
    if not network.parameters and any(stage.parameter_shapes for stage in network.stages):
        raise TilewrightError(
            f"network {network.name!r} has no weights, and a report runs it: give some with "
            "--weights, or make them with `tilewright train PATH.json`"
        )
    return network.name


def _of_one(wish: Wish, parts: Parts, progress: Progress) -> list[Record]:
    found = parts.get(wish, "ladder") or parts.put(
        wish, "ladder", [_ladder(wish, parts.done, progress)]
    )
    (ladder,) = (each for each in found if isinstance(each, LadderRecord))
    records: list[Record] = [ladder]
    timed = {row.rung: row.vendor for row, _ in ladder.timed}
    rates = {row.rung: time.images_per_second for row, time in ladder.timed}
    ahead = wish.device.kind == "cuda" and environment.cpu_cores() >= ENOUGH_CORES
    measured = [*asked.runs(wish, timed, ahead, rates), *asked.answers(wish, ladder, ahead)]
    kernels, profiles = [*asked.kernels(wish, timed)], [*asked.profiles(wish, ladder, ahead, rates)]
    beside, on_the_cpu = replace(wish, device=CPU), wish.milestone and wish.device.is_gpu
    guesses = {asked.SERIAL: LOOPS / ladder.flop_an_image} if ladder.flop_an_image else {}
    loops = [*asked.runs(beside, asked.on_the_cpu(), guesses=guesses)] if on_the_cpu else []
    for of, wanted in ((wish, [*measured, *kernels, *profiles]), (beside, loops)):
        known = [part for part in wanted if not _too_long(of, part, part.rate or part.guess)]
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
