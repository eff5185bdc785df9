"""Judging a class with a judge that is made up: resuming, ranks, points."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.judge.grade import Grading, formula, ranked
from tilewright.judge.submissions import Submission
from tilewright.results.grade import Judged

ANNA, BEN, CARLA = (Submission(name, f"{name}.cl", name.encode()) for name in ("anna", "ben", "c"))
DORA = Submission("dora", "dora", problem="it is a link, and links are not followed")
TIMES = {"anna": 4e-3, "ben": 2e-3}


def judge(each: Submission) -> Judged:
    if each.student not in TIMES:
        return Judged(outcome="wrong", reason="conv1: output[0] is 1, must be 2")
    half = (TIMES[each.student] / 2,) * 9
    operations = {"conv1": half, "conv2": half}
    return Judged(outcome="right", operations=operations, baseline={"conv1": (6e-3,) * 9})


def test_right_ones_are_ranked_by_time_and_the_others_come_after(tmp_path: Path) -> None:
    grading = Grading(tmp_path / "journal", {})
    judged = grading.judge([ANNA, CARLA, BEN, DORA], judge)
    graded = ranked(judged, formula("max(0, min(100, 100 * (6000 - time) // 4000))"))
    assert [(each.student, each.rank, each.points) for each in graded] == [
        ("ben", 1, 100),
        ("anna", 2, 50),
        ("c", None, 0),
        ("dora", None, 0),
    ]
    assert graded[3].judged.outcome == "nothing to judge"


@pytest.mark.parametrize(
    ("text", "points"),
    [("count - rank", [1, 0]), ("100 * best // time", [100, 50]), ("baseline // time", [3, 1])],
)
def test_a_formula_speaks_of_the_class(tmp_path: Path, text: str, points: list[int]) -> None:
    judged = Grading(tmp_path / "journal", {}).judge([ANNA, BEN], judge)
    assert [each.points for each in ranked(judged, formula(text))] == points


def test_equal_times_share_a_place(tmp_path: Path) -> None:
    twin = Submission("twin", "twin.cl", b"twin")
    judged = [(each, judge(BEN)) for each in (BEN, twin)] + [(ANNA, judge(ANNA))]
    assert [each.rank for each in ranked(judged, formula("1"))] == [1, 1, 3]


@pytest.mark.parametrize("text", ["", "time /", "tim", "open('x')", "1.5", "time.real"])
def test_what_is_no_formula_is_refused_with_its_option(text: str) -> None:
    with pytest.raises(TilewrightError, match="--points: "):
        formula(text)


def test_a_class_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    def stops(each: Submission) -> Judged:
        if each is BEN:
            raise KeyboardInterrupt
        return judge(each)

    path = tmp_path / "journal"
    with pytest.raises(KeyboardInterrupt):
        Grading(path, {"seed": 1}).judge([ANNA, BEN, CARLA], stops)
    again: list[str] = []

    def counting(each: Submission) -> Judged:
        again.append(each.student)
        return judge(each)

    judged = Grading(path, {"seed": 1}).judge([ANNA, BEN, CARLA], counting)
    assert again == ["ben", "c"] and [each for each, _ in judged] == [ANNA, BEN, CARLA]
    # What was changed is judged anew, and with another seed nothing is taken over.
    changed = Submission("anna", "anna.cl", b"better")
    Grading(path, {"seed": 1}).judge([changed], counting)
    assert again == ["ben", "c", "anna"]
    with pytest.raises(TilewrightError, match="another seed"):
        Grading(path, {"seed": 2})


def test_a_damaged_journal_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    Grading(path, {}).judge([ANNA], judge)
    path.write_text(path.read_text().replace('"right"', '"perfect"'))
    with pytest.raises(TilewrightError, match="journal, line 2: not as it was written"):
        Grading(path, {})
