"""Places and points: the best counts, late costs, handing in again never does."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.classroom.made import HERE, KERNEL, NOW, TASK, right, store_with
from tests.examples import examples
from tilewright.classroom.course import Course, Late, Task
from tilewright.classroom.people import Person
from tilewright.classroom.ranking import board, standings, steps
from tilewright.classroom.store import Store
from tilewright.classroom.submissions import Submitted
from tilewright.results.grade import Judged

WRONG = Judged(outcome="wrong", reason="bias forgotten")


@pytest.fixture
def store(tmp_path) -> Store:
    store = store_with(tmp_path, "anna", "ben", "carla")
    store.enrol("tina", "Tina", teacher=True)
    return store


def judged(
    store: Store,
    login: str,
    verdict: Judged | float,
    task: Task = TASK,
    days: float = 0,
    ranked=True,
) -> int:
    moment = NOW + datetime.timedelta(days=days)
    number = store.hand_in(login, task, KERNEL, ranked, moment)
    found = verdict if isinstance(verdict, Judged) else right(verdict)
    assert store.take("w", {"opencl"}).number == number
    assert store.finish(number, "w", found)
    return number


def course(names: str = "pseudonyms") -> Course:
    return Course(Path(), "C", names, frozenset({"tina"}), {}, None, {"first": TASK})


def test_the_fastest_that_counts_has_the_place(store):
    judged(store, "anna", 0.004)
    best = judged(store, "anna", 0.002)
    judged(store, "anna", WRONG)
    judged(store, "anna", 0.0001, ranked=False)
    taken_out = judged(store, "anna", 0.0002)
    store.disqualify(taken_out, "copied", "tina")
    judged(store, "ben", 0.001)
    judged(store, "carla", WRONG)
    judged(store, "tina", 0.00001)
    found = {each.person.login: each for each in standings(store, TASK)}
    assert [(login, each.rank) for login, each in found.items()] == [
        ("ben", 1), ("anna", 2), ("carla", None),
    ]  # fmt: skip
    assert found["anna"].best.number == best and len(found["anna"].handed_in) == 5
    assert found["anna"].points == 100 and found["carla"].points == 0


def test_each_day_late_costs_and_the_better_of_both_is_paid(store):
    task = replace(TASK, closes=NOW, late=Late(20, 3), points="min(100, 50 * baseline // time)")
    judged(store, "anna", 0.002, task)
    judged(store, "anna", 0.001, task, days=2.5)
    judged(store, "ben", 0.002, task)
    judged(store, "ben", 0.001, task, days=0.5)
    found = {each.person.login: each for each in standings(store, task)}
    assert (found["anna"].points, found["anna"].late_percent) == (50, 0)
    assert (found["ben"].points, found["ben"].late_percent) == (80, 20)
    assert found["anna"].rank == found["ben"].rank == 1


times = st.integers(1, 9).map(lambda number: number / 1000)
days = st.integers(0, 3)


@given(
    st.lists(st.tuples(st.sampled_from(["anna", "ben", "carla"]), times, days), max_size=8),
    st.tuples(times, days),
    st.sampled_from([
        "100 * best // time", "60 + 40 * (count - rank) // max(1, count - 1)", "time - 2000",
        "100 - time // 100", "25 * baseline // time if rank < 3 else 10",
    ]),
)  # fmt: skip
@examples(40)
def test_handing_in_again_never_costs_points(earlier, again, formula):
    task = replace(TASK, closes=NOW, late=Late(30, 3), points=formula)
    store = Drawn()
    for login, time, days in earlier:
        store.add(login, time, days)
    before = {each.person.login: each.points for each in standings(store, task)}
    store.add("anna", *again)
    after = {each.person.login: each.points for each in standings(store, task)}
    assert after["anna"] >= before["anna"] >= 0


class Drawn:
    """As much of a store as a ranking asks for, without a disk."""

    def __init__(self) -> None:
        self.of = []
        self.known = [Person(name, name, name) for name in ("anna", "ben", "carla")]

    def add(self, login: str, seconds: float, days: int) -> None:
        moment = NOW + datetime.timedelta(days=days)
        one = Submitted(
            len(self.of) + 1, login, "first", "opencl", "a.cl", "", 1, True, moment, "done", 1, 1,
            None, "", right(seconds), None,
        )  # fmt: skip
        self.of.append(one)

    def of_task(self, task: str) -> list:
        return self.of

    def people(self) -> list:
        return self.known


def test_who_sees_whom(store):
    judged(store, "anna", 0.001)
    judged(store, "ben", 0.002)
    people = {person.login: person for person in store.people()}
    anna, ben, tina = people["anna"], people["ben"], people["tina"]

    def seen(names, viewer):
        rows = board(course(names), store, TASK, viewer).rows
        return [(row.name, row.number, row.login, row.mine) for row in rows]

    mine, other = ("Anna", 1, "anna", True), (ben.pseudonym, 2, None, False)
    assert seen("pseudonyms", anna) == [mine, other]
    assert seen("names", anna) == [mine, ("Ben", 2, None, False)]
    assert seen("own", anna) == [mine]
    assert seen("own", None) == []
    for names in ("names", "pseudonyms"):  # nobody is named to whom nobody knows
        assert [name for name, *_ in seen(names, None)] == [anna.pseudonym, ben.pseudonym]
    for names in ("names", "pseudonyms", "own"):
        assert seen(names, tina) == [("Anna", 1, "anna", False), ("Ben", 2, "ben", False)]
    found = board(course("own"), store, TASK, ben)
    assert (found.rows[0].rank, found.right, found.students) == (2, 2, 3)


def test_marks_stand_among_the_times_and_have_no_place(store):
    task = replace(TASK, marks=("direct", "tuned", "torch"))
    refused = Judged(outcome="refused", reason="not installed")
    marks = {"direct": right(0.004), "tuned": right(0.001), "torch": refused}
    store.keep_marks(task, HERE, 0, marks)
    judged(store, "anna", 0.002, task)
    rows = board(course(), store, task, None).rows
    assert [(row.mark, row.rank, row.seconds) for row in rows] == [
        (True, None, 0.001), (False, 1, 0.002), (True, None, 0.004),
    ]  # fmt: skip
    assert rows[1].times == 1.0


def test_a_way_is_all_steps_and_the_best_until_then(store):
    for verdict in (0.004, WRONG, 0.006, 0.002):
        judged(store, "anna", verdict)
    found = [(step.seconds, step.best) for step in steps(store, "first", "anna")]
    assert found == [(0.004, 0.004), (None, 0.004), (0.006, 0.004), (0.002, 0.002)]
