"""Rates that come nearer and nearer to measured times, and how the two compare: for what fits them
(`benchmarks.panels`, `benchmarks.patches`)."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any, Protocol, TypeVar

Rates = TypeVar("Rates")


class Case(Protocol):
    """Something that was timed in several ways, of which rates choose one."""

    name: str
    images: int
    least: float  # seconds of the fastest
    torch: float

    def chosen(self, rates: Any) -> float: ...


def nearer(start: Rates, loss: Callable[[Rates], float], tries: int) -> Rates:
    """One or two rates change at random, and are kept if better; the second half by less."""
    generator = random.Random(0)
    best, least = start, loss(start)
    names = [each.name for each in fields(start)]
    for number in range(tries):
        step = 0.25 if number < tries // 2 else 0.08
        changed = {
            name: getattr(best, name) * math.exp(generator.gauss(0, step))
            for name in generator.sample(names, generator.choice((1, 1, 2)))
        }
        other = replace(best, **changed)
        if (found := loss(other)) < least:
            best, least = other, found
    return best


def show(stands: Any, fitted: Any, cases: Iterable[Case]) -> None:
    """Both, and how much longer what they choose takes than the fastest."""
    table = {"stands": stands, "fitted": fitted}
    for each in fields(stands):
        values = "  ".join(f"{getattr(rates, each.name):9.4g}" for rates in table.values())
        print(f"  {each.name:8} {values}    ({', '.join(table)})")
    for case in cases:
        longer = "  ".join(f"{case.chosen(of) / case.least - 1:6.1%}" for of in table.values())
        times = "  ".join(f"{case.torch / case.chosen(of):5.2f}" for of in table.values())
        print(f"  {case.name:18} {case.images:6,} images  {longer} longer than the fastest; "
              f"PyTorch takes {times} times as long")  # fmt: skip
