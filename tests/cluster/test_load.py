"""The load test finds what it looks for: a verdict too few, a wrong one, two on one device."""

from __future__ import annotations

import fcntl

import pytest
from benchmarks.load import write
from benchmarks.stand_in import FLOOD, StandIn, found_wrong

from tests.classroom.made import NOW
from tilewright.classroom.course import read_course
from tilewright.classroom.store import store_of

KINDS = ("right", "wrong", "right")


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "class", 2)
    return tmp_path / "class"


@pytest.fixture
def judged(folder):
    """Hands in for two students and has it judged; kinds by number, or what is `said` of them."""
    course = read_course(folder)
    store, task = store_of(course), course.tasks["load"]
    judge = StandIn(folder / "log")

    def judge_all(kinds=KINDS, cut=0, said=None):
        numbers = {}
        for index, kind in enumerate(kinds):
            login = FLOOD if index else "s0"
            files = {"mine.cl": f"{kind} {index}".encode()}
            numbers[store.hand_in(login, task, files, True, NOW)] = said or kind
        while taken := store.take("worker", {str(task.device)}):
            if cut:
                cut -= 1
                store.release("worker", "it was cut")
                continue
            store.finish(taken.number, "worker", judge(task, store.files(taken.number), print))
        return numbers

    return judge_all


def test_nothing_is_wrong_with_what_is_right(folder, judged):
    assert list(found_wrong(folder, judged(), 0)) == []
    assert (folder / "log").read_text().count("begin ") == len(KINDS)


def test_what_is_lost_or_wrong_is_found(folder, judged):
    numbers = judged(said="wrong")
    assert list(found_wrong(folder, numbers, 0)) == [
        "submission 1, wrong: right", "submission 3, wrong: right",
    ]  # fmt: skip
    lost, *_ = found_wrong(folder, {**numbers, 4: "right"}, 0)
    assert lost == "4 were taken, and 3 are there"


def test_more_cuts_than_there_were_are_found(folder, judged):
    numbers = judged(cut=2)
    assert list(found_wrong(folder, numbers, 2)) == []
    assert list(found_wrong(folder, numbers, 1)) == ["2 judgings were cut, and we cut 1 at most"]


def test_two_on_one_device_are_found(folder, judged):
    with (folder / "timing-opencl").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        numbers = judged()
    assert list(found_wrong(folder, numbers, 0)) == [
        f"together {index} opencl: another was timed on that device" for index in (0, 1, 2)
    ]
