from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from tilewright.measure.samples import (
    ON_GPU,
    SETTLE_SECONDS,
    UNKNOWN,
    WARM_SECONDS,
    Interval,
    Rounds,
    Sample,
    interleave,
    pause_before,
    ratio,
    ratio_apart,
    usual_rounds,
)
from tilewright.runtime.device import CPU, Device


class FakeMachine:
    """A clock that only moves when something runs or sleeps."""

    def __init__(self):
        self.now = 0.0
        self.calls: list[str] = []

    def subject(self, name, seconds):
        def run():
            self.calls.append(name)
            self.now += next(seconds) if hasattr(seconds, "__next__") else seconds
            return name

        return run

    def sleep(self, seconds):
        self.now += seconds

    def interleave(self, subjects, *rounds, **more):
        return interleave(subjects, *rounds, clock=lambda: self.now, sleep=self.sleep, **more)


def test_every_round_has_every_subject_in_an_order_of_its_own():
    machine = FakeMachine()
    subjects = {name: machine.subject(name, 1.0) for name in "abcd"}
    machine.interleave(subjects, 40, warmup=1)
    rounds = ["".join(machine.calls[i : i + 4]) for i in range(0, len(machine.calls), 4)]
    assert len(rounds) == 41
    assert all(sorted(each) == list("abcd") for each in rounds)
    # Nothing always follows the same other one.
    followed = {each[i : i + 2] for each in rounds for i in range(3)}
    assert len(followed) == 4 * 3


def test_the_order_is_the_seeds():
    orders = []
    for seed in (1, 1, 2):
        machine = FakeMachine()
        machine.interleave({name: machine.subject(name, 1.0) for name in "abcd"}, 9, seed=seed)
        orders.append(machine.calls)
    assert orders[0] == orders[1] != orders[2]


def test_only_the_subject_itself_is_timed_and_warm_up_is_not_counted():
    machine = FakeMachine()
    collected = []
    subjects = {"a": machine.subject("a", iter([9.0, 1.0, 2.0, 3.0]))}
    samples = machine.interleave(
        subjects, 3, warmup=1, collect=lambda name, result: collected.append(name)
    )
    assert samples["a"].seconds == pytest.approx((1.0, 2.0, 3.0))
    assert collected == ["a"] * 3
    assert machine.now == pytest.approx(15 + 4 * SETTLE_SECONDS)


def test_short_subjects_get_a_run_of_their_own_before_each_counted_one():
    machine = FakeMachine()
    subjects = {"short": machine.subject("s", 0.01), "long": machine.subject("l", 1.0)}
    samples = machine.interleave(subjects, 2, warmup=1)
    assert machine.calls.count("s") == 1 + 2 * 2
    assert machine.calls.count("l") == 3
    assert samples["short"].seconds == pytest.approx((0.01, 0.01))


def noisy(generator, share):
    while True:
        yield 1.0 + share * generator.exponential()


def test_very_short_subjects_run_until_they_are_warm():
    machine = FakeMachine()
    machine.interleave({"a": machine.subject("a", WARM_SECONDS / 3.5)}, 2, warmup=1)
    assert len(machine.calls) == 1 + 2 * (4 + 1)


def test_rounds_go_on_until_the_intervals_are_narrow():
    machine = FakeMachine()
    generator = np.random.default_rng(1)
    subjects = {
        "steady": machine.subject("steady", 1.0),
        "noisy": machine.subject("noisy", noisy(generator, 0.08)),
    }
    rounds = Rounds(least=9, most=500, seconds=math.inf, narrow=0.01)
    samples = machine.interleave(subjects, rounds)
    count = len(samples["noisy"].seconds)
    assert 9 < count < 500
    assert samples["noisy"].uncertainty <= 0.01
    before = Sample(samples["noisy"].seconds[:-1])
    assert before.uncertainty > 0.01
    # What does not matter does not hold up the rest.
    few = machine.interleave(subjects, rounds, decisive=lambda name: name == "steady")
    assert len(few["steady"].seconds) == 9


def test_certainty_may_go_by_something_else_than_the_host_saw():
    """A GPU's own time, above all: the host's may wobble as it likes."""
    machine = FakeMachine()
    times = noisy(np.random.default_rng(1), 0.5)
    subjects = {"a": machine.subject("a", times)}
    rounds = Rounds(least=9, most=40, seconds=math.inf)
    given = []

    def judged_by(name, result, seconds):
        given.append((name, result, seconds))
        return 1.0

    samples = machine.interleave(subjects, rounds, judged_by=judged_by)
    assert len(samples["a"].seconds) == 9
    assert samples["a"].uncertainty > rounds.narrow
    # Warm-up is not judged, and samples are the host's as before.
    assert given == [("a", "a", seconds) for seconds in samples["a"].seconds]
    assert len(machine.interleave(subjects, rounds)["a"].seconds) == 40


def test_nobody_waits_before_a_gpus_turn():
    gpu, pocl = Device("cuda", 0), Device("opencl", 0)
    assert pause_before([gpu, Device("cuda", 1)]) == 0
    assert pause_before([gpu, CPU]) == pause_before([pocl, CPU]) == SETTLE_SECONDS
    assert 0 < pause_before([pocl]) == pause_before([pocl, gpu]) < SETTLE_SECONDS
    machine = FakeMachine()
    machine.interleave({"a": machine.subject("a", 1.0)}, 3, warmup=1, pause=0.0)
    assert machine.now == pytest.approx(4)
    assert usual_rounds(gpu) == ON_GPU
    assert usual_rounds(CPU) == usual_rounds(pocl) == Rounds()


@pytest.mark.parametrize(
    ("rounds", "count"),
    [
        (Rounds(least=9, most=12, seconds=math.inf), 12),
        (Rounds(least=9, most=1000, seconds=40.0), 20),  # of 2 seconds and more, with the pause
        (Rounds(least=30, most=30, seconds=1.0), 30),
        (Rounds(least=2, most=2), 2),
        (5, 5),
    ],
)
def test_rounds_have_a_limit(rounds, count):
    machine = FakeMachine()
    times = iter([1.0, 3.0] * 1000)
    samples = machine.interleave({"a": machine.subject("a", times)}, rounds, warmup=0)
    assert len(samples["a"].seconds) == count


def test_the_machine_can_be_looked_at_between_rounds():
    machine = FakeMachine()
    looked = []
    subjects = {"a": machine.subject("a", 1.0)}
    machine.interleave(subjects, 3, warmup=2, between=lambda: looked.append(len(machine.calls)))
    assert looked == [2, 3, 4, 5]


SKEWED = {
    "exponential": lambda g, size: 1 + 0.05 * g.exponential(size=size),
    "lognormal": lambda g, size: 1 + 0.1 * g.lognormal(0, 1, size),
    "spikes": lambda g, size: (
        1 + 0.01 * g.random(size) + (g.random(size) < 0.2) * g.exponential(0.5, size)
    ),
}


@cache
def true_median(draw):
    return float(np.median(draw(np.random.default_rng(99), 400_001)))


@pytest.mark.parametrize("draw", SKEWED.values(), ids=SKEWED)
@pytest.mark.parametrize("count", [6, 7, 9, 15, 25])
def test_the_median_is_in_its_interval_as_often_as_claimed(draw, count):
    """Half an interquartile range around it held it in 45 to 79 of 100 cases."""
    generator, truth = np.random.default_rng(7), true_median(draw)
    tries = draw(generator, (1000, count))
    held = [truth in Sample(tuple(each)).interval for each in tries]
    assert np.mean(held) >= 0.94


@pytest.mark.parametrize("draw", SKEWED.values(), ids=SKEWED)
@pytest.mark.parametrize("count", [6, 9])
def test_a_ratio_is_in_its_interval_as_often_as_claimed(draw, count):
    """Also where whole rounds are slower than others."""
    generator, other = np.random.default_rng(8), SKEWED["exponential"]
    truth = true_median(draw) / true_median(other)
    held = []
    for _ in range(150):
        rounds = 1 + 0.2 * generator.random(count)
        over, under = (Sample(tuple(rounds * each(generator, count))) for each in (draw, other))
        held.append(truth in ratio(over, under).interval)
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize("draw", SKEWED.values(), ids=SKEWED)
@pytest.mark.parametrize("counts", [(6, 12), (9, 9)])
def test_a_ratio_of_different_days_is_in_its_interval_as_often_as_claimed(draw, counts):
    generator, other = np.random.default_rng(9), SKEWED["exponential"]
    truth = true_median(draw) / true_median(other)
    held = []
    for _ in range(120):
        over, under = (
            Sample(tuple(each(generator, count)))
            for each, count in zip((draw, other), counts, strict=True)
        )
        held.append(truth in ratio_apart(over, under).interval)
    assert np.mean(held) >= 0.93


def test_samples_of_different_days_are_no_pairs():
    """Rounds that follow the same pattern by chance would make any difference certain."""
    rounds = [1.0, 1.4, 0.9, 1.2, 1.1, 1.3, 1.0, 0.8, 1.2]
    slow, fast = Sample(tuple(rounds)), Sample(tuple(each / 1.05 for each in rounds))
    assert ratio(slow, fast).differs
    assert not ratio_apart(slow, fast).differs
    assert ratio_apart(slow, Sample(tuple(each / 2 for each in rounds[:6]))).differs
    assert not ratio_apart(slow, Sample((0.1,))).interval.known


@pytest.mark.parametrize("count", range(1, 6))
def test_few_repeats_say_nothing(count):
    few = Sample(tuple(1.0 + 0.001 * i for i in range(count)))
    assert few.interval == UNKNOWN
    assert few.uncertainty == math.inf
    assert few.verdict == "too few repeats to tell"
    assert not ratio(few, Sample(tuple(2 * each for each in few.seconds))).differs


def test_ratios_tell_what_differs_from_what_may_be_the_same():
    rounds = [1.0, 1.4, 0.9, 1.2, 1.1, 1.3, 1.0, 0.8, 1.2]
    slow, fast = Sample(tuple(rounds)), Sample(tuple(each / 1.05 for each in rounds))
    # Every round has it, whatever the rounds are like.
    found = ratio(slow, fast)
    assert found.value == pytest.approx(1.05)
    assert found.differs
    assert found.interval.low == pytest.approx(found.interval.high)
    shuffled = Sample(tuple(each / 1.05 for each in reversed(rounds)))
    assert not ratio(slow, shuffled).differs
    with pytest.raises(ValueError, match="same rounds"):
        ratio(slow, Sample((1.0,)))


@pytest.mark.parametrize(("spread", "verdict"), [(0.01, "steady"), (0.04, "fair"), (0.2, "noisy")])
def test_the_verdict_follows_the_interval(spread, verdict):
    sample = Sample(tuple(1.0 + spread * i for i in (-1, 1, -0.9, 0.9, 0, 0.1, -0.1)))
    assert sample.verdict == verdict


def test_statistics():
    sample = Sample((3.0, 1.0, 2.0, 100.0, 2.5, 2.4))
    assert sample.median == 2.45
    assert sample.best == 1.0
    assert sample.interval == Interval(1.0, 100.0)
    assert sample.uncertainty == pytest.approx(99 / 2 / 2.45)
    # The second and the eighth of nine: 1 - 2 * (1 + 9) / 512 = 96.1 %.
    assert Sample(tuple(map(float, range(9)))).interval == Interval(1.0, 7.0)
