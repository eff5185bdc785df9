"""A class judged: every submission on its own, ranked, with points by the teacher's formula.

Whatever one submission does, the others go on: each is judged in processes of its own, and what
came of it is written down before the next begins, so that a class that was stopped in the middle is
not judged twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tilewright.journal import Journal
from tilewright.judge.submissions import Submission
from tilewright.results.grade import Graded, Judged
from tilewright.rungs.own.expression import Expression, Place

SCHEMA = "tilewright.grading/1"
# What a formula can speak of: whole microseconds, and whole numbers.
NAMES = {"time", "baseline", "best", "rank", "count"}

Judge = Callable[[Submission], Judged]


def formula(text: str) -> Expression:
    """The points of a kernel that is right, from its `time` over all images and `baseline`'s, the
    `best` time of the class, its `rank` and how many are right (`count`)."""
    made = Expression(text, Place("--points", None, ""))
    made.check_names(NAMES)
    return made


class Grading:
    """The judging of a class that can be stopped at any time and goes on from there."""

    def __init__(self, path: Path, about: Mapping[str, object]) -> None:
        self.journal = Journal(path, SCHEMA, about)
        self.known: dict[tuple[str, str], Judged] = {}
        for index, line in enumerate(self.journal.lines):
            try:
                kept = msgspec.convert(line, _Line)
            except msgspec.ValidationError as error:
                raise self.journal.broken(index, error) from error
            self.known[kept.student, kept.sha256] = kept.judged

    def judge(
        self,
        handed_in: Sequence[Submission],
        judge: Judge,
        progress: Callable[[str, int, int], None] = lambda student, done, of: None,
    ) -> list[tuple[Submission, Judged]]:
        """What came of every submission, in their order."""
        judged = []
        for done, each in enumerate(handed_in):
            progress(each.student, done, len(handed_in))
            judged.append((each, self._judged(each, judge)))
        return judged

    def _judged(self, each: Submission, judge: Judge) -> Judged:
        if each.problem is not None:
            return Judged(outcome="nothing to judge", reason=each.problem)
        key = each.student, each.digest
        if key not in self.known:
            found = judge(each)
            line = _Line(student=each.student, sha256=each.digest, judged=found)
            self.journal.append(msgspec.to_builtins(line))
            self.known[key] = found
        return self.known[key]


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    student: str
    sha256: str
    judged: Judged


def ranked(judged: Sequence[tuple[Submission, Judged]], points: Expression) -> list[Graded]:
    """Places and points: those that are right by their median time, the others after them by
    name. The same time to the last bit is the same place; whether two times can be told apart is
    for their intervals to say."""
    times = {
        each.student: found.total.median
        for each, found in judged
        if found.outcome == "right" and found.total is not None
    }
    best = min(times.values(), default=0.0)
    graded = []
    for each, found in judged:
        time = times.get(each.student)
        rank = None if time is None else 1 + sum(other < time for other in times.values())
        given = 0
        if time is not None and rank is not None:
            baseline = found.baseline_total
            given = points.value({
                "time": _microseconds(time), "best": _microseconds(best), "rank": rank,
                "count": len(times), "baseline": _microseconds(baseline.median if baseline else 0),
            })  # fmt: skip
        graded.append(
            Graded(
                student=each.student,
                file=each.file,
                sha256=each.digest,
                judged=found,
                rank=rank,
                points=given,
            )
        )
    return sorted(graded, key=lambda each: (each.rank is None, each.rank or 0, each.student))


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
