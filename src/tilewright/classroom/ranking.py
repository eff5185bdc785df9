"""Who stands where: of each person the fastest that counts, points by the task's formula.

Points are those of a person's best submission after the rule for late work. What one submission is
worth does not depend on the same person's others, so that handing in again never costs anything.
"""

from __future__ import annotations

import datetime
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.classroom.course import Course, Task
from tilewright.classroom.marks import Timed
from tilewright.classroom.people import Person
from tilewright.classroom.store import Store
from tilewright.classroom.submissions import Submitted
from tilewright.rungs.own.expression import Expression


@dataclass(frozen=True)
class Standing:
    """A student's. `best` is the fastest that counts, `paid` the one that gives the points, of
    which `late_percent` were taken off; both are None until something is right."""

    person: Person
    handed_in: tuple[Submitted, ...]
    best: Submitted | None = None
    paid: Submitted | None = None
    rank: int | None = None
    points: int = 0
    late_percent: int = 0


@dataclass(frozen=True)
class Row:
    """A line of a leaderboard, as somebody may see it: a student, or a mark, which has no place.

    `times` is how many times as fast as the rung that all are compared with. `number` is of the
    submission, `login` of whoever may be known by it. `handed_in` are the ranked ones: how often
    somebody tried in private is nobody's business.
    """

    name: str
    seconds: float
    times: float | None = None
    rank: int | None = None
    points: int | None = None
    late_percent: int = 0
    handed_in: int = 0
    number: int | None = None
    login: str | None = None
    mine: bool = False
    mark: bool = False


@dataclass(frozen=True)
class Board:
    """`right` students have a place; `students` are in the class. `timed` are the marks, if they
    are."""

    task: Task
    rows: tuple[Row, ...]
    right: int
    students: int
    timed: Timed | None = None


@dataclass(frozen=True)
class Step:
    """One submission of a person's way; `best` is the fastest until then that counts."""

    number: int
    handed_in: datetime.datetime
    seconds: float | None
    best: float | None


def board(
    course: Course,
    store: Store,
    task: Task,
    viewer: Person | None,
    all_of: Sequence[Standing] | None = None,
) -> Board:
    """The leaderboard as the class lets this person see it; teachers see all. `all_of` are the
    standings, where they are known already."""
    all_of = standings(store, task) if all_of is None else all_of
    rows = [
        _row(course, each, viewer)
        for each in all_of
        if each.best is not None and _seen(course, each.person, viewer)
    ]
    timed = store.marks(task)
    rows += _marks(timed)
    rows.sort(key=lambda row: (row.seconds, row.name))
    right = sum(each.rank is not None for each in all_of)
    return Board(task, tuple(rows), right, len(all_of), timed)


def standings(store: Store, task: Task) -> list[Standing]:
    """Of all students, those with a place first; teachers only try things out."""
    handed_in: dict[str, list[Submitted]] = defaultdict(list)
    for each in store.of_task(task.name):
        handed_in[each.login].append(each)
    formula = task.formula
    students = [person for person in store.people() if not person.teacher]
    fastest = {person.login: _fastest(handed_in[person.login]) for person in students}
    times = sorted(_seconds(each) for each in fastest.values() if each is not None)
    found = [
        _standing(person, handed_in[person.login], fastest[person.login], times, task, formula)
        for person in students
    ]
    return sorted(found, key=lambda each: (each.rank is None, each.rank or 0, each.person.login))


def _fastest(handed_in: Sequence[Submitted]) -> Submitted | None:
    counting = [each for each in handed_in if each.counts]
    return min(counting, key=lambda each: (_seconds(each), each.number), default=None)


def _standing(
    person: Person, handed_in: Sequence[Submitted], best: Submitted | None,
    times: Sequence[float], task: Task, formula: Expression,
) -> Standing:  # fmt: skip
    if best is None:
        return Standing(person, tuple(handed_in))
    others = list(times)
    others.remove(_seconds(best))
    worth = [(points(each, others, task, formula), each) for each in handed_in if each.counts]
    given, paid = max(worth, key=lambda pair: (pair[0], -pair[1].number))
    return Standing(
        person, tuple(handed_in), best, paid, 1 + bisect_left(others, _seconds(best)),
        given, task.late_percent(paid.handed_in),
    )  # fmt: skip


def points(
    each: Submitted, others: Sequence[float], task: Task, formula: Expression | None = None
) -> int:
    """What a submission is worth among the best times of the other people, fastest first; 0 unless
    it counts."""
    if not each.counts or each.judged is None:
        return 0
    time, baseline = _seconds(each), each.judged.baseline_total
    given = (formula or task.formula).value(
        {
            "time": _microseconds(time),
            "best": _microseconds(min([time, *others[:1]])),
            "rank": 1 + bisect_left(others, time),
            "count": 1 + len(others),
            "baseline": _microseconds(baseline.median if baseline else 0.0),
        }
    )
    return max(0, given) * (100 - task.late_percent(each.handed_in)) // 100


def others_than(login: str, class_of: Sequence[Standing]) -> list[float]:
    """The best times of the other people, fastest first."""
    return sorted(
        _seconds(each.best) for each in class_of if each.best and each.person.login != login
    )


def steps(store: Store, task: str, login: str) -> list[Step]:
    """How a person's times went, submission by submission."""
    made: list[Step] = []
    best: float | None = None
    for each in store.of_person(login, task):
        if each.counts:
            best = _seconds(each) if best is None else min(best, _seconds(each))
        made.append(Step(each.number, each.handed_in, each.seconds, best))
    return made


def open_to(course: Course, each: Submitted, viewer: Person) -> bool:
    """Whether somebody may read how fast a submission is. What has a place, or could have, is for
    the class, if its leaderboard is; never what was private, wrong or taken out. Whose it is, its
    files and what was said of them are its owner's and the teachers' alone."""
    return owns(each, viewer) or (each.counts and course.names != "own")


def owns(each: Submitted, viewer: Person) -> bool:
    """Whether all of a submission is somebody's to read."""
    return viewer.teacher or viewer.login == each.login


def _seen(course: Course, person: Person, viewer: Person | None) -> bool:
    if viewer is not None and (viewer.teacher or viewer.login == person.login):
        return True
    return course.names != "own"


def name_of(course: Course, person: Person, viewer: Person | None) -> str:
    """What somebody is called before a viewer."""
    if viewer is None:
        return person.pseudonym
    near = viewer.teacher or viewer.login == person.login
    return person.name if near or course.names == "names" else person.pseudonym


def _row(course: Course, standing: Standing, viewer: Person | None) -> Row:
    person, best = standing.person, standing.best
    assert best is not None
    mine = viewer is not None and viewer.login == person.login
    near = mine or (viewer is not None and viewer.teacher)
    return Row(
        name=name_of(course, person, viewer),
        seconds=_seconds(best),
        times=_times(best),
        rank=standing.rank,
        points=standing.points,
        late_percent=standing.late_percent,
        handed_in=sum(each.ranked for each in standing.handed_in),
        number=best.number,
        login=person.login if near else None,
        mine=mine,
    )


def _marks(timed: Timed | None) -> list[Row]:
    totals = {} if timed is None else {name: each.total for name, each in timed.marks.items()}
    return [Row(n, total.median, mark=True) for n, total in totals.items() if total is not None]


def _seconds(each: Submitted) -> float:
    assert each.seconds is not None  # as it counts
    return each.seconds


def _times(each: Submitted) -> float | None:
    baseline = None if each.judged is None else each.judged.baseline_total
    return None if baseline is None else baseline.median / _seconds(each)


def _microseconds(seconds: float) -> int:
    return max(1, round(seconds * 1e6))  # no formula need fear to divide by it
