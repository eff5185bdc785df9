"""All that a report needs and that is not there yet, measured part by part.

Rungs are proven and timed in turns, in this process; what is of one rung is measured in a process
of its own, one after the other. What compilers say of kernels is no measurement, and is asked for
all rungs at once.
"""

from __future__ import annotations

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
from tilewright.reporting.remaining import Remaining
from tilewright.reporting.wish import Wish, settled
from tilewright.results import climbed
from tilewright.results.ladder import LadderRecord
from tilewright.results.record import Record
from tilewright.rungs import find, rungs
from tilewright.runtime.device import CPU

SERIAL = "serial"
# From so many cores on, a process that starts is not in the way of one that is measured on a GPU.
ENOUGH_CORES = 4
Make = Callable[[Progress], Sequence[Record]]


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
    measured, kernels = [*_runs(wish, timed), *_answers(wish, ladder)], [*_kernels(wish, timed)]
    profiles, beside = [*_profiles(wish, ladder)], replace(wish, device=CPU)
    on_the_cpu = wish.milestone and wish.device.is_gpu
    loops = [*_runs(beside, _on_the_cpu())] if on_the_cpu else []
    parts.expect(wish, [name for name, _ in (*measured, *kernels, *profiles)])
    parts.expect(beside, [name for name, _ in loops])
    ahead = wish.device.kind == "cuda" and environment.cpu_cores() >= ENOUGH_CORES
    with started_ahead() if ahead else nullcontext():
        for name, make in measured:
            records += parts.part(wish, name, partial(make, progress))
        records += _together(wish, parts, kernels, progress)
        for name, make in profiles:
            records += parts.part(wish, name, partial(make, progress))
    for name, make in loops:
        records += parts.part(beside, name, partial(make, progress))
    return records


def _together(
    wish: Wish, parts: Parts, wanted: Sequence[tuple[str, Make]], progress: Progress
) -> list[Record]:
    """Parts that are no measurements: all that are missing are made at once."""
    found: list[Record] = []
    pool = ThreadPoolExecutor(environment.cpu_cores())
    begun = {
        name: pool.submit(make, lambda *now: None)
        for name, make in wanted
        if parts.get(wish, name) is None
    }

    def made(name: str) -> Sequence[Record]:
        return begun[name].result()

    try:
        for number, (name, _) in enumerate(wanted):
            progress("compiling kernels", number, len(wanted))
            found += parts.part(wish, name, partial(made, name))
    finally:
        pool.shutdown(cancel_futures=True)
    return found


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
        self.remaining.done("proof")
        left = self.remaining.words(["proof"] * (self.ahead - 1))
        self.tell(f"{self.wish.net} on {self.wish.device}: {row.name} {outcome}{left}")
        if self.ahead <= 1:
            self.tell(f"{self.wish.net} on {self.wish.device}: timing all in turns")

    def timed(self, name: str, seconds: float) -> None:
        pass


def _runs(wish: Wish, labels: Iterable[str]) -> Iterator[tuple[str, Make]]:
    for label in labels:
        for images in wish.sizes:
            yield (
                f"run {label}, {images} images",
                partial(elsewhere, measure.run, wish=wish, label=label, images=images),
            )


def _on_the_cpu() -> list[str]:
    """What the course asks for beside a GPU: the loops, and a framework."""
    able = [rung for rung in rungs(CPU) if rung.missing(CPU) is None]
    return [rung.label for rung in able if rung.name == SERIAL or rung.vendor]


def _answers(wish: Wish, ladder: LadderRecord) -> Iterator[tuple[str, Make]]:
    """To all images."""
    if wish.data != drawn.NAME and ladder.timed:
        make = partial(elsewhere, measure.answered, wish=wish, label=_best(ladder))
        yield "answers", make


def _kernels(wish: Wish, timed: Mapping[str, bool]) -> Iterator[tuple[str, Make]]:
    """What the compiler made of every rung of our own."""
    for label, vendor in timed.items():
        if not vendor and wish.device.is_gpu:
            make = partial(elsewhere, measure.kernels, wish=wish, label=label)
            yield f"kernels {label}", make


def _profiles(wish: Wish, ladder: LadderRecord) -> Iterator[tuple[str, Make]]:
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
        yield (
            name,
            partial(elsewhere, measure.profile, wish=wish, label=label, memory=plan, shown=shown),
        )


def _best(ladder: LadderRecord) -> str:
    """The fastest rung of our own, or of anyone."""
    return min(ladder.ranked, key=lambda pair: (pair[0].vendor, pair[1].median_seconds))[0].rung
