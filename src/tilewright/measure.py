"""Timing that can be trusted: warm-up, repeats, interleaving, raw samples, a verdict on noise."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

Name = TypeVar("Name")
Result = TypeVar("Result")

# Up to these spreads (interquartile range over median) a sample is called steady, then fair.
STEADY, FAIR = 0.03, 0.10
# Before each turn, and the length up to which a turn is disturbed by the one before it.
SETTLE_SECONDS, SHORT_SECONDS = 0.1, 0.2


@dataclass(frozen=True)
class Sample:
    """The seconds of every repeat, in the order they were taken."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Interquartile range as a share of the median; 0 for a single repeat."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median if self.median else 0.0

    @property
    def verdict(self) -> str:
        """Whether the figure can be leaned on."""
        if len(self.seconds) < 3:
            return "too few repeats to tell"
        return "steady" if self.spread <= STEADY else "fair" if self.spread <= FAIR else "noisy"


def interleave(
    subjects: Mapping[Name, Callable[[], Result]],
    repeats: int,
    warmup: int = 1,
    collect: Callable[[Name, Result], None] = lambda name, result: None,
    progress: Callable[[Name], None] = lambda name: None,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[Name, Sample]:
    """Time several things in one run, in turns, so that they share whatever the machine does.

    Every round runs each subject once, starting with another one each time; the first `warmup`
    rounds are not counted. `collect` gets what each counted turn returned.

    Libraries keep their threads spinning for a while after a call, and the next library's
    threads then wait for a core: on 2 cores ONNX Runtime took 23 ms instead of 7 for 100 images
    right after PyTorch (cifar10, 2026-11-15). So each turn starts with a pause, and a short
    subject then runs once uncounted, to find its own threads and caches warm.
    """
    names = list(subjects)
    seconds: dict[Name, list[float]] = {name: [] for name in names}
    latest = dict.fromkeys(names, float("inf"))
    for turn in range(warmup + repeats):
        start_at = turn % max(1, len(names))
        for name in names[start_at:] + names[:start_at]:
            sleep(SETTLE_SECONDS)
            if latest[name] < SHORT_SECONDS:
                subjects[name]()
            start = clock()
            result = subjects[name]()
            latest[name] = clock() - start
            if turn >= warmup:
                seconds[name].append(latest[name])
                collect(name, result)
            progress(name)
    return {name: Sample(tuple(values)) for name, values in seconds.items()}
