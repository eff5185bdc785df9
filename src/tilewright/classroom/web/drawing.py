"""Charts as plain numbers, in per cent of the drawing: templates make SVG of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tilewright.classroom.store import Submitted
from tilewright.measure.samples import Sample
from tilewright.results.grade import Judged, Profile
from tilewright.views import units

LEFT, RIGHT = 18.0, 97.0  # beside the labels
SLOWEST, FASTEST, NOT_RIGHT = 20.0, 94.0, 6.0  # the last are above all times


@dataclass(frozen=True)
class Dot:
    """A submission; `words` say all of it to who cannot see the drawing."""

    x: float
    y: float
    right: bool
    number: int
    words: str


@dataclass(frozen=True)
class Stroke:
    """A piece of the line of best times."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True)
class Progress:
    dots: tuple[Dot, ...]
    strokes: tuple[Stroke, ...]
    labels: tuple[tuple[float, str], ...]
    since: datetime
    until: datetime


@dataclass(frozen=True)
class Bar:
    """A convolution's time beside the rung's that all are compared with; widths in per cent.
    `cold` is its time with other data in the caches, `profile` how near it comes to what the
    device can do, where they are known."""

    name: str
    seconds: float
    width: float
    other_seconds: float
    other_width: float
    cold: float | None
    profile: Profile | None


def seconds(submitted: Submitted) -> float | None:
    """The time of all convolutions, if it is right."""
    judged = submitted.judged
    if judged is None or judged.outcome != "right" or judged.total is None:
        return None
    return judged.total.median


def progress(submissions: Sequence[Submitted]) -> Progress | None:
    """One person's submissions to a task, by when they were handed in; times are on a logarithmic
    scale, and the line is the best so far. None before anything is judged."""
    done = sorted((each for each in submissions if each.judged), key=lambda each: each.number)
    if not done:
        return None
    times = [time for each in done if (time := seconds(each)) is not None]
    since, until = (chosen(each.handed_in for each in done) for chosen in (min, max))

    def x(each: Submitted) -> float:
        """By time; by their order where all came at the same moment."""
        share = _share(each.handed_in.timestamp(), since.timestamp(), until.timestamp())
        if not since < until:
            share = _share(done.index(each), 0, len(done) - 1)
        return LEFT + share * (RIGHT - LEFT)

    def y(time: float) -> float:
        share = _share(math.log(time), math.log(max(times)), math.log(min(times)))
        return SLOWEST + share * (FASTEST - SLOWEST)

    dots: list[Dot] = []
    strokes: list[Stroke] = []
    best: tuple[float, float] | None = None  # where the line has come to
    for each in done:
        time, words = seconds(each), f"{each.number}: {each.judged.outcome if each.judged else ''}"
        if time is None:
            dots.append(Dot(x(each), NOT_RIGHT, False, each.number, words))
            continue
        here = x(each), y(time)
        dots.append(Dot(*here, True, each.number, f"{words}, {units.seconds(time)}"))
        if best is None or here[1] > best[1]:
            if best is not None:
                strokes += [Stroke(*best, here[0], best[1]), Stroke(here[0], best[1], *here)]
            best = here
    if best is not None:
        strokes.append(Stroke(*best, RIGHT, best[1]))
    labels = {
        y(time): str(units.seconds(time)) for time in times if time in (min(times), max(times))
    }
    if len(times) < len(done):
        labels[NOT_RIGHT] = "not right"
    return Progress(tuple(dots), tuple(strokes), tuple(labels.items()), since, until)


@dataclass(frozen=True)
class Figures:
    """A verdict in numbers, which say nothing of the source: they may be shown to the class.
    `correct` are right answers by how many images there were, `worst` the largest error as a share
    of what rounding allows."""

    bars: tuple[Bar, ...]
    rounds: int
    correct: dict[int, float]
    worst: float | None


def figures(judged: Judged) -> Figures:
    rounds = min(map(len, judged.operations.values()), default=0)
    correct = {int(images): share for images, share in judged.correct.items()}
    return Figures(tuple(_bars(judged)), rounds, correct, judged.worst_share_of_bound)


def _bars(judged: Judged) -> list[Bar]:
    """Medians of every convolution, the longest as wide as the drawing."""
    mine, others, cold = (
        {name: Sample(times).median for name, times in each.items()}
        for each in (judged.operations, judged.baseline, judged.cold)
    )
    longest = max((*mine.values(), *others.values()), default=0.0) or 1.0
    return [
        Bar(name, time, 100 * time / longest, others.get(name, 0.0),
            100 * others.get(name, 0.0) / longest, cold.get(name), judged.profile.get(name))
        for name, time in mine.items()
    ]  # fmt: skip


def _share(value: float, start: float, stop: float) -> float:
    """How far it is on the way; in the middle where there is no way."""
    return 0.5 if start == stop else (value - start) / (stop - start)
