"""Look for the fastest of many candidates, where trying one costs a compilation.

Candidates of one kernel differ in a few whole numbers (tiles, warps, channels at a time), and what
is fast lies next to what is nearly as fast. So each rung's own choice is tried first; then, in
turn, a candidate that differs in one number from the best so far, and one that is drawn from all.
A candidate that is clearly slower after one short sample is not timed any longer. The search ends
when all are tried, when nothing was better for a while, or when its time is over.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import TilewrightError

CLEARLY_SLOWER = 1.25  # times the best; noise of a short sample is less
BETTER = 0.99  # of the best, to count as one that is better
PATIENCE = 40  # candidates in a row of which none was better


@dataclass(frozen=True)
class Candidate:
    """One way to compute a part of a network: a rung in a precision, with options of its own.

    `options` are pairs in the order of their names, so that candidates can be compared.
    """

    rung: str
    precision: str
    options: tuple[tuple[str, object], ...] = ()

    def __str__(self) -> str:
        chosen = " ".join(f"{name}={value}" for name, value in self.options)
        return f"{self.rung} {self.precision} {chosen}".rstrip()


@dataclass(frozen=True)
class Tried:
    """What came of a candidate: its seconds, or why it has none."""

    candidate: Candidate
    seconds: tuple[float, ...] = ()
    problem: str | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds) if self.seconds else float("inf")


@dataclass(frozen=True)
class Ending:
    """All that was tried, fastest first, and why the search ended."""

    tried: tuple[Tried, ...]
    reason: str


# Seconds of a candidate, each of so many repeats; TilewrightError if it cannot be built.
Timer = Callable[[Candidate, int], Sequence[float]]


def search(
    candidates: Sequence[Candidate],
    first: Sequence[Candidate],
    timer: Timer,
    *,
    known: Mapping[Candidate, Tried],
    keep: Callable[[Tried], None] = lambda tried: None,
    time_left: Callable[[], float] = lambda: float("inf"),
    patience: int = PATIENCE,
    repeats: int = 5,
    seed: int = 1,
) -> Ending:
    """Time candidates, `first` before all others; `keep` is told of each at once.

    `known` are those that were tried before, which are not tried again. `time_left` is in seconds;
    what is tried first is tried whatever it says, so that there always is a result.
    """
    tried: dict[Candidate, Tried] = {}
    best = Tried(Candidate("", ""))
    since = 0

    def attempt(candidate: Candidate) -> None:
        nonlocal best, since
        result = known.get(candidate)
        if result is None:
            result = _timed(candidate, timer, best.median, repeats)
            keep(result)
        tried[candidate] = result
        better = result.median < BETTER * best.median
        since = 0 if better else since + 1
        if result.median < best.median:
            best = result

    for candidate in dict.fromkeys(first):
        attempt(candidate)
    since = 0
    reason = "all candidates were tried"
    for candidate in _order(candidates, tried, lambda: best, random.Random(seed)):
        if time_left() <= 0:
            reason = "its time was over"
            break
        if since >= patience:
            reason = f"none of {patience} candidates in a row was better"
            break
        attempt(candidate)
    return Ending(tuple(sorted(tried.values(), key=lambda each: each.median)), reason)


def _timed(candidate: Candidate, timer: Timer, best: float, repeats: int) -> Tried:
    try:
        seconds = tuple(timer(candidate, 1))
        if statistics.median(seconds) <= CLEARLY_SLOWER * best:
            seconds += tuple(timer(candidate, repeats))
    except TilewrightError as error:
        return Tried(candidate, problem=str(error))
    return Tried(candidate, seconds)


def _order(
    candidates: Sequence[Candidate],
    tried: Mapping[Candidate, Tried],
    best: Callable[[], Tried],
    generator: random.Random,
) -> Iterator[Candidate]:
    """Those not tried: a neighbour of the best so far, then any, and so on."""
    drawn = list(dict.fromkeys(candidates))
    generator.shuffle(drawn)
    near = True
    while left := [each for each in drawn if each not in tried]:
        chosen = left[0]
        if near:
            neighbours = [each for each in left if _neighbours(each, best().candidate)]
            chosen = neighbours[0] if neighbours else chosen
        near = not near
        yield chosen


def _neighbours(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates of a rung differ in one number only."""
    if (one.rung, one.precision) != (other.rung, other.precision):
        return False
    mine, others = dict(one.options), dict(other.options)
    return mine.keys() == others.keys() and sum(mine[n] != others[n] for n in mine) == 1
