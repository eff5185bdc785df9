"""The search among candidates, with timers that are made up: what is found, and at what cost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from tilewright.errors import TilewrightError
from tilewright.tune.search import Candidate, Ending, Tried, search

SIZES = (1, 2, 4, 8, 16, 32)
ALL = [
    Candidate.of("tuned", "fp32", {"rows": y, "columns": x, "staged": s})
    for y, x, s in itertools.product(SIZES, SIZES, (1, 2, 4))
]


class Bench:
    """A timer over a landscape, with a clock that moves as it is used."""

    def __init__(self, landscape: Callable[[dict[str, int]], float]) -> None:
        self.landscape = landscape
        self.calls: list[tuple[Candidate, int]] = []
        self.now = 0.0

    def __call__(self, candidate: Candidate, repeats: int) -> Sequence[float]:
        seconds = self.landscape({name: int(str(v)) for name, v in candidate.plain.items()})
        self.calls.append((candidate, repeats))
        self.now += 0.5 + repeats * seconds
        return [seconds] * repeats

    def tried(self) -> set[Candidate]:
        return {candidate for candidate, _ in self.calls}


def valley(options: dict[str, int]) -> float:
    """Slower with every step away from 8 rows, 4 columns, 2 channels."""
    best = {"rows": 8, "columns": 4, "staged": 2}
    return 1e-3 * (1 + sum(abs(SIZES.index(options[n]) - SIZES.index(best[n])) for n in best) / 4)


def look(bench: Bench, **more: object) -> Ending:
    return search(ALL, ALL[:1], bench, known={}, **more)  # type: ignore[arg-type]


def test_the_best_is_found_when_all_are_tried() -> None:
    bench = Bench(valley)
    ending = look(bench, patience=len(ALL))
    assert dict(ending.tried[0].candidate.plain) == {"rows": 8, "columns": 4, "staged": 2}
    assert ending.reason == "all were tried" and bench.tried() == set(ALL)


@pytest.mark.parametrize("seed", range(8))
def test_neighbours_of_what_is_fast_lead_to_the_best_early(seed: int) -> None:
    bench = Bench(valley)
    ending = look(bench, seed=seed, patience=25)
    assert dict(ending.tried[0].candidate.plain) == {"rows": 8, "columns": 4, "staged": 2}
    assert len(bench.tried()) < len(ALL)


def test_what_is_tried_was_announced_so_that_it_can_be_compiled() -> None:
    bench = Bench(valley)
    announced: dict[Candidate, int] = {}

    def ahead(some: Sequence[Candidate]) -> None:
        for candidate in some:
            announced.setdefault(candidate, len(bench.calls))

    look(bench, patience=len(ALL), ahead=ahead)
    first = {c: next(i for i, call in enumerate(bench.calls) if call[0] == c) for c in ALL}
    assert all(announced[candidate] <= first[candidate] for candidate in ALL)
    # Most of them well before: while others were timed.
    assert sum(announced[candidate] < first[candidate] for candidate in ALL) > len(ALL) / 2


def test_what_is_clearly_slower_gets_one_short_sample() -> None:
    bench = Bench(lambda options: 1.0 if options["rows"] == 1 else 5.0)
    look(bench, patience=len(ALL))
    repeats = {c: [n for each, n in bench.calls if each == c] for c in bench.tried()}
    assert all(counts == ([1, 5] if dict(c.plain)["rows"] == 1 else [1])
               for c, counts in repeats.items())  # fmt: skip


def test_what_cannot_be_built_is_kept_with_its_reason_and_never_wins() -> None:
    def landscape(options: dict[str, int]) -> float:
        if options["rows"] >= 8:
            raise TilewrightError("tuned_conv needs a block of 2,048 threads")
        return valley(options)

    kept: list[Tried] = []
    ending = look(Bench(landscape), patience=len(ALL), keep=kept.append)
    assert len(kept) == len(ALL) == len(ending.tried)
    assert dict(ending.tried[0].candidate.plain) == {"rows": 4, "columns": 4, "staged": 2}
    assert "2,048 threads" in str(ending.tried[-1].problem) and not ending.tried[-1].seconds


def test_it_ends_when_nothing_was_better_for_a_while() -> None:
    bench = Bench(lambda options: 1e-3)
    ending = look(bench, patience=10)
    assert len(bench.tried()) == 11 and "none of 10 in a row" in ending.reason


def test_it_ends_with_its_time_but_never_before_the_first() -> None:
    bench = Bench(valley)
    ending = look(bench, time_left=lambda: 10.0 - bench.now)
    assert ending.reason == "its time was over" and 10.0 <= bench.now < 12.0
    bench = Bench(valley)
    assert len(look(bench, time_left=lambda: 0.0).tried) == 1 == len(bench.tried())


def test_what_is_known_is_not_timed_again() -> None:
    whole = look(Bench(valley), patience=len(ALL))
    known = {each.candidate: each for each in whole.tried[10:]}
    bench = Bench(valley)
    again = search(ALL, ALL[:1], bench, known=known, patience=len(ALL))
    assert bench.tried() == {each.candidate for each in whole.tried[:10]} - known.keys()
    assert again.tried[0].candidate == whole.tried[0].candidate


def test_the_same_seed_tries_the_same_in_the_same_order() -> None:
    one, other, third = Bench(valley), Bench(valley), Bench(valley)
    for bench, seed in ((one, 3), (other, 3), (third, 4)):
        look(bench, seed=seed, patience=30)
    assert one.calls == other.calls != third.calls
