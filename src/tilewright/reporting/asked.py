"""What a report asks for, part by part: runs, answers, kernels and profiles of every rung."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright import environment
from tilewright.contest import Progress
from tilewright.data import drawn
from tilewright.memory import DEVICE_PLANS
from tilewright.reporting import measure
from tilewright.reporting.process import elsewhere
from tilewright.reporting.remaining import COUNTING, START, getting_ready
from tilewright.reporting.wish import Wish
from tilewright.results.ladder import LadderRecord
from tilewright.results.record import Record
from tilewright.rungs import find, rungs
from tilewright.runtime.device import CPU

SERIAL = "serial"
NONE: Mapping[str, float] = {}
Make = Callable[[Progress], Sequence[Record]]


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


def runs(
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


def on_the_cpu() -> list[str]:
    """What the course asks for beside a GPU: the loops, and a framework."""
    able = [rung for rung in rungs(CPU) if rung.missing(CPU) is None]
    return [rung.label for rung in able if rung.name == SERIAL or rung.vendor]


def answers(wish: Wish, ladder: LadderRecord, ahead: bool) -> Iterator[Part]:
    """To all images."""
    if wish.data != drawn.NAME and ladder.timed:
        label = best(ladder)
        make = partial(elsewhere, measure.answered, wish=wish, label=label)
        yield Part("answers", make, getting_ready(label, ahead))


def kernels(wish: Wish, timed: Mapping[str, bool]) -> Iterator[Part]:
    """What the compiler made of every rung of our own."""
    for label, vendor in timed.items():
        if not vendor and wish.device.is_gpu:
            make = partial(elsewhere, measure.kernels, wish=wish, label=label)
            yield Part(f"kernels {label}", make, START / environment.cpu_cores())  # all at once


def profiles(
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
        shown = plan is not None or label in (*own[:1], best(ladder))
        counted = wish.counters and label in own and plan is None
        # The course asks for calls of a whole program: a framework's, or that of the first kernel.
        whole = wish.milestone and wish.device.is_gpu and plan is None
        begun = whole and label not in own[1:]
        make = partial(
            elsewhere, measure.profile, wish=wish, label=label, memory=plan, shown=shown,
            counted=counted, begun=begun,
        )  # fmt: skip
        repeated = (measure.PROFILE_REPEATS + 2) * wish.images / rates[label]
        ready = getting_ready(label, ahead) + (getting_ready(label, False) if begun else 0.0)
        seconds = ready + (COUNTING if counted else 0.0) + repeated
        yield Part(name, make, seconds)


def best(ladder: LadderRecord) -> str:
    """The fastest rung of our own, or of anyone."""
    return min(ladder.ranked, key=lambda pair: (pair[0].vendor, pair[1].median_seconds))[0].rung
