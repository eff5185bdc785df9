"""Look for the fastest of many candidates, where trying one costs a compilation.

Candidates of one kernel differ in a few numbers (tiles, warps, channels at a time), and what is
fast lies next to what is nearly as fast. So each rung's own choice is tried first; then, a few at a
time so that they are compiled side by side, candidates that differ in one number from the best so
far, those that their rung likes best, and some drawn from all. A candidate that is clearly slower
after one short sample is not timed any longer. The search ends when all are tried, when nothing was
better for a while, or when its time is over.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.errors import TilewrightError
from tilewright.rungs.rung import Options, Value

CLEARLY_SLOWER = 1.25  # times the best; noise of a short sample is less
BETTER = 0.99  # of the best, to count as one that is better
PATIENCE = 40  # candidates in a row of which none was better
# Of those that are tried together: near to the best so far, liked best, and drawn.
NEAR, LIKED, DRAWN = 3, 3, 2


# Where in the options something is chosen.
Form = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Candidate:
    """One way to compute a part of a network: a rung in a precision, with options of its own.

    `options` are text, JSON in the order of names, so that candidates can be compared.
    """

    rung: str
    precision: str
    options: str = "{}"

    @classmethod
    def of(cls, rung: str, precision: str, options: Options) -> Candidate:
        return cls(rung, precision, json.dumps(options, sort_keys=True))

    @cached_property
    def plain(self) -> Options:
        """The options as a plan has them."""
        found: Options = json.loads(self.options)
        return found

    @cached_property
    def numbers(self) -> dict[tuple[str, ...], Value]:
        """Everything that was chosen, by where it stands in the options."""
        return dict(_leaves((), self.plain))

    @property
    def form(self) -> Form:
        """What there is to choose: alike where only numbers differ."""
        return tuple(self.numbers)

    def __str__(self) -> str:
        return f"{self.rung} {words(self.plain)}".rstrip()


def words(options: Options) -> str:
    """Options in short: names that their kernels all have are not repeated."""
    leaves = [(path[-1], value) for path, value in _leaves((), options)]
    return " ".join(f"{name}={value}" for name, value in leaves)


def _leaves(path: tuple[str, ...], value: Value) -> Iterator[tuple[tuple[str, ...], Value]]:
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves((*path, name), each)
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for index, each in enumerate(value):
            yield from _leaves((*path, str(index)), each)
    else:
        yield path, value


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
    ahead: Callable[[Sequence[Candidate]], None] = lambda candidates: None,
    trying: Callable[[Candidate, Tried | None], None] = lambda candidate, best: None,
    time_left: Callable[[], float] = lambda: float("inf"),
    patience: int = PATIENCE,
    repeats: int = 5,
    seed: int = 1,
) -> Ending:
    """Time candidates, `first` before all others; `keep` is told of each at once.

    `candidates` have those that their rung likes best first. `known` are those that were tried
    before, which are not tried again. `ahead` is told of some that will be tried soon, `trying` of
    each that is now, and of the best so far. `time_left` is in seconds; what is tried first is
    tried whatever it says, so that there always is a result.
    """
    tried: dict[Candidate, Tried] = {}
    best: Tried | None = None
    since = 0

    def attempt(candidate: Candidate) -> None:
        nonlocal best, since
        result = known.get(candidate)
        fastest = float("inf") if best is None else best.median
        if result is None:
            trying(candidate, best)
            result = _timed(candidate, timer, fastest, repeats)
            keep(result)
        tried[candidate] = result
        since = 0 if result.median < BETTER * fastest else since + 1
        if result.median < fastest:
            best = result

    def rest() -> str:
        nonlocal since
        since = 0
        for together, soon in _order(candidates, tried, lambda: best, random.Random(seed)):
            ahead([each for each in (*together, *soon) if each not in known])
            for candidate in together:
                if time_left() <= 0:
                    return "its time was over"
                if since >= patience:
                    return f"none of {patience} in a row was better"
                attempt(candidate)
        return "all were tried"

    own = list(dict.fromkeys(first))
    ahead([each for each in own if each not in known])
    for candidate in own:
        attempt(candidate)
    reason = rest()
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
    best: Callable[[], Tried | None],
    generator: random.Random,
) -> Iterator[tuple[list[Candidate], list[Candidate]]]:
    """Those not tried, some at a time: near to the best so far, liked best, drawn.

    With them come those that are liked next: they may be compiled while the others are timed.
    """
    liked = list(dict.fromkeys(candidates))
    drawn = generator.sample(liked, len(liked))
    while left := [each for each in drawn if each not in tried]:
        found = best()
        near = [each for each in left if found and _neighbours(each, found.candidate)]
        ahead = [each for each in liked if each not in tried]
        together = dict.fromkeys((*near[:NEAR], *ahead[:LIKED], *left[:DRAWN]))
        yield list(together), [each for each in ahead[LIKED : 3 * LIKED] if each not in together]


def _neighbours(one: Candidate, other: Candidate) -> bool:
    """Whether two candidates of a rung differ in one number only."""
    if (one.rung, one.precision) != (other.rung, other.precision):
        return False
    mine, others = one.numbers, other.numbers
    return mine.keys() == others.keys() and sum(mine[n] != others[n] for n in mine) == 1
