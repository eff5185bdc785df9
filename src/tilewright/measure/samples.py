"""Timing that can be trusted: warm-up, turns in shuffled order, raw samples, intervals.

The median of a sample has an interval that holds the true median in 95 of 100 cases whatever the
times are spread like: two of the sample's own order statistics, by the binomial distribution. The
ratio of two medians has one by the bootstrap, over rounds that both took part in, or over those of
each where they were timed on different days. Fewer than 6 repeats allow neither, and the interval
is everything.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tilewright.runtime.device import Device

Name = TypeVar("Name")
Result = TypeVar("Result")

CONFIDENCE = 0.95
# Up to these half widths of its interval, as a share of the median, a sample is steady, then fair.
STEADY, FAIR = 0.02, 0.05
# The bootstrap's resamples; its percentiles come out too close together for fewer pairs than
# ENOUGH (92 to 95 % of cases on skewed times), so that it takes rarer ones there.
RESAMPLES, RESAMPLES_SEED, ENOUGH, RARER = 1999, 1, 9, 0.005
# Before each turn, and the length up to which a turn is disturbed by the one before it.
SETTLE_SECONDS, SHORT_SECONDS = 0.1, 0.2
# Before a turn of OpenCL's among its own: PoCL's threads sleep as soon as they have nothing to do.
# Three rungs through it, 2 cores of an AMD EPYC (2026-11-16): the same times with both pauses.
SETTLE_OPENCL_SECONDS = 0.02
# A short one runs uncounted for so long before it: 1,000 images of cifar10 through `network` on an
# H200 (2026-11-16) took 1.4 ms after a rest, 0.8 ms the second time and 0.55 ± 0.05 from the third.
WARM_SECONDS = 0.004


@dataclass(frozen=True)
class Interval:
    """Where a true value lies in 95 of 100 cases."""

    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def ends(self) -> list[float] | None:
        """Both, for JSON, which has no infinity."""
        return [self.low, self.high] if self.known else None

    @property
    def known(self) -> bool:
        """Whether there were enough repeats for one."""
        return math.isfinite(self.high)

    def half_width(self, value: float) -> float:
        """Half of it, as a share of a value; infinite if nothing is known."""
        return (self.high - self.low) / (2 * value) if self.known and value else math.inf


UNKNOWN = Interval(0.0, math.inf)


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
    def interval(self) -> Interval:
        """Of the median."""
        skipped = _skipped(len(self.seconds))
        if skipped is None:
            return UNKNOWN
        ordered = sorted(self.seconds)
        return Interval(ordered[skipped], ordered[-1 - skipped])

    @property
    def uncertainty(self) -> float:
        """Half the interval's width, as a share of the median."""
        return self.interval.half_width(self.median)

    @property
    def verdict(self) -> str:
        """Whether the figure can be leaned on."""
        if not self.interval.known:
            return "too few repeats to tell"
        wide = self.uncertainty
        return "steady" if wide <= STEADY else "fair" if wide <= FAIR else "noisy"


@cache
def _skipped(count: int) -> int | None:
    """Of so many repeats, how many at each end are outside the median's interval.

    Each repeat is below the true median or not, like the toss of a coin: the interval misses it if
    no more than `skipped` are below, or above. None if even all of them together miss too often.
    """
    missed, skipped = 0.0, None
    for below in range(count // 2):
        missed += 2 * math.comb(count, below) / 2**count
        if missed > 1 - CONFIDENCE:
            break
        skipped = below
    return skipped


@dataclass(frozen=True)
class Ratio:
    """One median over another, measured in the same rounds."""

    value: float
    interval: Interval

    @property
    def uncertainty(self) -> float:
        return self.interval.half_width(self.value)

    @property
    def differs(self) -> bool:
        """Whether the two can be told apart."""
        return 1.0 not in self.interval

    def doubted(self, share: float) -> Ratio:
        """As it is on a machine where others took a share of the processors' time.

        What is left for something that wants all cores is that much less, while something that
        wants one core may have it all: on a quiet machine the ratio may be so much higher or lower.
        """
        left = max(1 - share, 1e-9)
        return Ratio(self.value, Interval(self.interval.low * left, self.interval.high / left))


def ratio(over: Sample, under: Sample) -> Ratio:
    """Of two samples' medians. What slowed a whole round down did so to both, and cancels."""
    if len(over.seconds) != len(under.seconds):
        raise ValueError("a ratio is of samples from the same rounds")
    rounds = _resampled(len(over.seconds))
    return _bootstrap(over, under, rounds, rounds)


def ratio_apart(over: Sample, under: Sample) -> Ratio:
    """Of two samples' medians that were taken at different times: no round of one is one of the
    other, and each varies on its own.
    """
    rounds = _resampled(len(over.seconds)), _resampled(len(under.seconds), stream=1)
    return _bootstrap(over, under, *rounds)


def _resampled(count: int, stream: int = 0) -> NDArray[np.int64]:
    """Rounds drawn again and again, as many as there were."""
    generator = np.random.default_rng(RESAMPLES_SEED + stream)
    return generator.integers(0, count, (RESAMPLES, count))


def _bootstrap(
    over: Sample, under: Sample, over_rounds: NDArray[np.int64], under_rounds: NDArray[np.int64]
) -> Ratio:
    value = over.median / under.median
    count = min(len(over.seconds), len(under.seconds))
    if _skipped(count) is None:
        return Ratio(value, UNKNOWN)
    upper = np.median(np.array(over.seconds)[over_rounds], axis=1)
    lower = np.median(np.array(under.seconds)[under_rounds], axis=1)
    tail = (1 - CONFIDENCE) / 2 if count >= ENOUGH else RARER
    ends = np.quantile(upper / lower, (tail, 1 - tail), method="inverted_cdf")
    return Ratio(value, Interval(float(ends[0]), float(ends[1])))


@dataclass(frozen=True)
class Rounds:
    """How many: `least`, then more until every interval is within ± `narrow`, but no more than
    `most`, and none that starts after so many `seconds`.
    """

    least: int = 9
    most: int = 49
    seconds: float = 60.0
    narrow: float = STEADY


# A GPU's rounds are short: what is not certain after a few seconds is not for want of them.
ON_GPU = Rounds(seconds=4.0)


def usual_rounds(device: Device) -> Rounds:
    """How many, where nobody says."""
    return ON_GPU if device.kind == "cuda" else Rounds()


def exactly(rounds: int) -> Rounds:
    return Rounds(rounds, rounds)


def pause_before(devices: Iterable[Device]) -> float:
    """Seconds before each turn, if these take turns. A GPU has processors of its own: it has nobody
    to wait for, and its clock, and the host's, would come down meanwhile.
    """
    kinds = {device.kind for device in devices}
    if kinds == {"cuda"}:
        return 0.0
    return SETTLE_SECONDS if "cpu" in kinds else SETTLE_OPENCL_SECONDS


def interleave(
    subjects: Mapping[Name, Callable[[], Result]],
    repeats: int | Rounds,
    warmup: int = 1,
    collect: Callable[[Name, Result], None] = lambda name, result: None,
    progress: Callable[[Name], None] = lambda name: None,
    seed: int = 1,
    decisive: Callable[[Name], bool] = lambda name: True,
    between: Callable[[], None] = lambda: None,
    pause: float = SETTLE_SECONDS,
    judged_by: Callable[[Name, Result, float], float] = lambda name, result, seconds: seconds,
    by_host: Callable[[Name], bool] = lambda name: True,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[Name, Sample]:
    """Time several things in one run, in turns, so that they share whatever the machine does.

    Every round runs each subject once, in an order shuffled anew, so that none always follows the
    same other one; the first `warmup` rounds are not counted. Rounds go on until the intervals of
    the `decisive` subjects are narrow enough: of their seconds, or of what a turn is `judged_by`,
    given what it returned and how long it took. `collect` gets what each counted turn returned;
    `between` is called before the first counted round and after each.

    Libraries keep their threads spinning for a while after a call, and the next library's
    threads then wait for a core: on 2 cores ONNX Runtime took 23 ms instead of 7 for 100 images
    right after PyTorch (cifar10, 2026-11-15). So each turn starts with a `pause`, and a short
    subject then runs once uncounted, to find its own threads and caches warm; for WARM_SECONDS, if
    it is timed `by_host` and not by a device's own clock.
    """
    wanted = exactly(repeats) if isinstance(repeats, int) else repeats
    names, shuffler = list(subjects), random.Random(seed)
    seconds: dict[Name, list[float]] = {name: [] for name in names}
    judged: dict[Name, list[float]] = {name: [] for name in names}
    latest = dict.fromkeys(names, float("inf"))

    def play(counted: bool) -> None:
        for name in shuffler.sample(names, len(names)):
            sleep(pause)
            if latest[name] < SHORT_SECONDS:
                warm = clock() + WARM_SECONDS
                subjects[name]()
                while by_host(name) and clock() < warm:
                    subjects[name]()
            start = clock()
            result = subjects[name]()
            latest[name] = clock() - start
            if counted:
                seconds[name].append(latest[name])
                judged[name].append(judged_by(name, result, latest[name]))
                collect(name, result)
            progress(name)

    def narrow() -> bool:
        samples = [Sample(tuple(judged[name])) for name in names if decisive(name)]
        return all(sample.uncertainty <= wanted.narrow for sample in samples)

    for _ in range(warmup):
        play(counted=False)
    between()
    began, done = clock(), 0
    while done < wanted.least or (
        done < wanted.most and clock() - began < wanted.seconds and not narrow()
    ):
        play(counted=True)
        between()
        done += 1
    return {name: Sample(tuple(values)) for name, values in seconds.items()}
