from __future__ import annotations

import pytest

from tilewright.measure import SETTLE_SECONDS, Sample, interleave


class FakeMachine:
    """A clock that only moves when something runs or sleeps."""

    def __init__(self):
        self.now = 0.0
        self.calls: list[str] = []

    def subject(self, name, seconds):
        def run():
            self.calls.append(name)
            self.now += seconds
            return name

        return run

    def sleep(self, seconds):
        self.now += seconds


def test_subjects_take_turns_and_another_one_starts_each_round():
    machine = FakeMachine()
    subjects = {name: machine.subject(name, 1.0) for name in "abc"}
    interleave(subjects, repeats=2, warmup=1, clock=lambda: machine.now, sleep=machine.sleep)
    assert "".join(machine.calls) == "abcbcacab"


def test_only_the_subject_itself_is_timed_and_warm_up_is_not_counted():
    machine = FakeMachine()
    times = iter([9.0, 1.0, 2.0, 3.0])
    collected = []

    def run():
        machine.now += next(times)
        return machine.now

    samples = interleave(
        {"a": run}, repeats=3, warmup=1, clock=lambda: machine.now, sleep=machine.sleep,
        collect=lambda name, result: collected.append(name),
    )  # fmt: skip
    assert samples["a"].seconds == pytest.approx((1.0, 2.0, 3.0))
    assert collected == ["a"] * 3
    assert machine.now == pytest.approx(15 + 4 * SETTLE_SECONDS)


def test_short_subjects_get_a_run_of_their_own_before_each_counted_one():
    machine = FakeMachine()
    subjects = {"short": machine.subject("s", 0.01), "long": machine.subject("l", 1.0)}
    samples = interleave(
        subjects, repeats=2, warmup=1, clock=lambda: machine.now, sleep=machine.sleep
    )
    assert machine.calls.count("s") == 1 + 2 * 2
    assert machine.calls.count("l") == 3
    assert samples["short"].seconds == pytest.approx((0.01, 0.01))


@pytest.mark.parametrize(
    ("seconds", "verdict"),
    [
        ((1.0, 1.0), "too few repeats to tell"),
        ((1.0, 1.01, 0.99, 1.0), "steady"),
        ((1.0, 1.08, 0.96, 1.04), "fair"),
        ((1.0, 2.0, 1.5, 0.5), "noisy"),
    ],
)
def test_the_verdict_follows_the_spread(seconds, verdict):
    assert Sample(seconds).verdict == verdict


def test_statistics():
    sample = Sample((3.0, 1.0, 2.0, 100.0, 2.5))
    assert sample.median == 2.5
    assert sample.best == 1.0
    assert sample.spread == pytest.approx((3.0 - 2.0) / 2.5)
    assert Sample((1.0,)).spread == 0
