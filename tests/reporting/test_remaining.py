"""How long is left: by what the like of it took."""

from __future__ import annotations

from tilewright.reporting.parts import Parts
from tilewright.reporting.remaining import Remaining
from tilewright.reporting.wish import Wish


def test_kinds_are_told_apart():
    now = iter([0.0, 10.0, 10.0, 110.0, 110.0])
    remaining = Remaining(clock=lambda: next(now))
    assert remaining.words(["run"]) == ""  # nobody knows
    remaining.begin()
    remaining.done("run")
    remaining.done("profile")
    assert remaining.words([]) == ""
    assert remaining.words(["run"] * 3) == ", 3 to go, about 30 s"
    assert remaining.words(["run", "profile"]) == ", 2 to go, about 2 min"
    assert remaining.words(["answers"]) == ", 1 to go, about 55 s"  # as what is known


def test_parts_that_are_kept_or_cannot_be_had_are_not_waited_for(tmp_path):
    told = []
    wish, parts = Wish(), Parts(tmp_path, told.append)
    parts.put(wish, "run a", [])
    parts.expect(wish, ["run a", "run b", "run c", "profile a"])
    assert parts.ahead == ["run b", "run c", "profile a"]
    parts.part(wish, "run a", list)
    parts.part(wish, "run b", list)
    assert "run b, 2 to go, about 0 s" in told[-1]
    parts.part(wish, "run c", fail)
    assert "run c could not be had, 1 to go" in told[-1]
    parts.part(wish, "profile a", list)
    assert told[-1].endswith("profile a") and parts.ahead == []


def fail():
    from tilewright.errors import TilewrightError

    raise TilewrightError("no")
