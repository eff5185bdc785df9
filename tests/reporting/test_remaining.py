"""How long is left: by what the like of it took."""

from __future__ import annotations

from tilewright.reporting.parts import Parts
from tilewright.reporting.remaining import Expected, Remaining, getting_ready
from tilewright.reporting.wish import Wish


def test_what_is_ahead_is_off_by_as_much_as_what_is_done():
    now = iter([0.0, 10.0, 10.0, 110.0, 110.0])
    remaining = Remaining(clock=lambda: next(now))
    assert remaining.words(map(Expected, (4.0, 5.0))) == ", 2 to go, about 9 s"  # before it begins
    remaining.begin()
    remaining.done(Expected(5.0))
    assert remaining.words(map(Expected, (15.0, 20.0))) == ", 2 to go, about 70 s"
    remaining.done(Expected(50.0))
    assert remaining.words([]) == ""
    assert remaining.words([Expected(60.0)]) == ", 1 to go, about 2 min"


def test_a_cpu_is_not_faster_than_expected_because_a_gpu_was():
    now = iter([0.0, 1.0, 1.0, 61.0, 61.0])
    remaining = Remaining(clock=lambda: next(now))
    remaining.begin()
    remaining.done(Expected(10.0, "cuda"))
    ahead = [Expected(20.0, "cuda"), Expected(30.0, "cpu"), Expected(10.0, "cpu")]
    assert remaining.words(ahead) == ", 3 to go, about 42 s"
    remaining.done(Expected(30.0, "cpu"))
    assert remaining.words(ahead[2:]) == ", 1 to go, about 20 s"


def test_what_takes_time_to_get_ready_is_known_before():
    usual = getting_ready("direct", ahead=False)
    assert getting_ready("direct", ahead=True) < usual < getting_ready("torch", ahead=False)


def test_parts_that_are_kept_or_cannot_be_had_are_not_waited_for(tmp_path):
    told = []
    wish, parts = Wish(), Parts(tmp_path, told.append)
    parts.put(wish, "run a", [])
    parts.expect(wish, {"run a": 1.0, "run b": 2.0, "run c": 3.0, "profile a": 70.0})
    assert [each.seconds for each in parts.ahead.values()] == [2.0, 3.0, 70.0]
    parts.announce()
    assert told[-1].endswith("3 to go, about 75 s")
    parts.part(wish, "run a", list)
    parts.part(wish, "run b", list)
    assert "run b, 2 to go" in told[-1]
    parts.part(wish, "run c", fail)
    assert "run c could not be had, 1 to go" in told[-1]
    parts.part(wish, "profile a", list)
    assert told[-1].endswith("profile a") and not parts.ahead


def fail():
    from tilewright.errors import TilewrightError

    raise TilewrightError("no")
