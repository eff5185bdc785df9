"""Workers that die, hang and lie: all that was handed in is judged, nothing twice for nothing."""

from __future__ import annotations

import multiprocessing
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

from tests.classroom.judges import Obedient
from tests.classroom.made import HERE, NOW, TASK, class_folder, right, store_with
from tilewright.classroom import seats
from tilewright.classroom.attendant import Attendant
from tilewright.classroom.course import Course, Task
from tilewright.classroom.judging import Tell
from tilewright.classroom.locks import device_turn, opened
from tilewright.classroom.marks import Where
from tilewright.classroom.places import Place, places
from tilewright.classroom.seats import LocalSeat, Lost, Mishap
from tilewright.classroom.store import Store
from tilewright.classroom.workers import LocalPool
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged
from tilewright.runtime.device import OPENCL, Device

SERVER = """
import sys, time
from pathlib import Path
from tests.classroom.judges import Obedient
from tilewright.classroom.locks import device_turn, opened
from tilewright.classroom.workers import LocalPool

with opened(Path(sys.argv[1])) as (course, store):
    pool = LocalPool(course, store, judge=Obedient(Path(sys.argv[2])))
    pool.start()
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def quick_starts(monkeypatch) -> None:
    """A pool's processes come from one that has imported what they need, in a tenth of the time of
    a new Python. Its environment is that of the first test: seats of tests that look at locks, and
    those of the server, start as a user's do."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tilewright.classroom.seats", "tests.classroom.judges"])
    forking = SimpleNamespace(get_context=lambda method: context)
    monkeypatch.setattr(seats, "multiprocessing", forking)


@pytest.fixture
def store(tmp_path) -> Store:
    return store_with(tmp_path, "anna", "ben")


@pytest.fixture
def log(tmp_path) -> Path:
    (tmp_path / "log").touch()
    return tmp_path / "log"


@pytest.fixture
def pool(tmp_path, store, log, quick_starts) -> Iterator[Callable[..., LocalPool]]:
    started = []

    def start(task=TASK, judge=None) -> LocalPool:
        course = Course(tmp_path, "C", "names", frozenset(), {}, None, {task.name: task})
        started.append(LocalPool(course, store, judge=judge or Obedient(log), pause=0.05))
        started[-1].start()
        return started[-1]

    yield start
    for each in started:
        each.stop()


def hand_in(store: Store, content: str, login: str = "anna") -> int:
    return store.hand_in(login, TASK, {"mine.cl": content.encode()}, True, NOW)


def wait(until: Callable[[], object], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def all_done(store: Store) -> bool:
    return all(each.state == "done" for each in store.of_task("first"))


def test_whatever_becomes_of_a_worker_all_is_judged(store, log, pool):
    numbers = {
        words: hand_in(store, words)
        for words in ("right 0.5", "die", "wrong bias", "once", "problem no room", "right 0.25")
    }
    pool()
    wait(lambda: all_done(store))
    found = {words: store.submission(number) for words, number in numbers.items()}
    assert found["right 0.5"].judged == right(0.5) and found["right 0.25"].judged == right(0.25)
    assert found["wrong bias"].judged.outcome == "wrong"
    assert (found["once"].judged.outcome, found["once"].attempts) == ("right", 2)
    assert found["die"].judged.outcome == "stopped"
    assert found["die"].judged.reason == (
        "its judging was cut short 2 times, at last because its worker is no more: it was killed "
        "by SIGKILL"
    )
    assert found["problem no room"].judged.reason.endswith("could not judge it: no room")
    lines = log.read_text().splitlines()
    assert {line: lines.count(line) for line in lines} == {
        "right 0.5 on opencl": 1, "die on opencl": 2, "wrong bias on opencl": 1,
        "once on opencl": 2, "problem no room on opencl": 2, "right 0.25 on opencl": 1,
    }  # fmt: skip


def test_a_process_that_hangs_is_given_up(log):
    seat = LocalSeat(OPENCL, Obedient(log))
    try:
        seat.open([TASK])
        assert seat.judge(TASK, {"a.cl": b"right 2"}, lambda words: None) == right(2)
        with pytest.raises(Mishap, match=r"(?s)Traceback .*judges\.py.*\nKeyError: 'bias'\n"):
            seat.judge(TASK, {"a.cl": b"mistake bias"}, lambda words: None)
        seat.silent = 0.5
        with pytest.raises(Lost, match=r"silent for 0\.5 s"):
            seat.judge(TASK, {"a.cl": b"hang"}, lambda words: None)
    finally:
        seat.close()
    assert seat.process.exitcode == -signal.SIGKILL


def test_what_takes_too_long_is_stopped_and_not_tried_again(store, log, pool, monkeypatch):
    monkeypatch.setattr("tilewright.classroom.seats.MORE_SECONDS", 0.0)
    long, after = hand_in(store, "sleep 60"), hand_in(store, "right 1")
    pool(replace(TASK, limit=0))
    wait(lambda: store.submission(long).state == "done")
    found = store.submission(long)
    assert (found.judged.outcome, found.attempts) == ("stopped", 1)
    assert found.judged.reason == "all of it took longer than 0 s"
    wait(lambda: store.submission(after).state == "done")


def test_to_wait_for_the_device_takes_nothing_off_ones_time(log, monkeypatch):
    monkeypatch.setattr("tilewright.classroom.seats.MORE_SECONDS", 0.0)
    ends: list[str] = []

    def judge() -> None:
        try:
            seat.judge(replace(TASK, limit=0), {"a.cl": b"sleep 60"}, lambda words: None)
        except Lost as lost:
            ends.append(str(lost))

    seat = LocalSeat(OPENCL, Obedient(log))
    try:
        seat.open([TASK])
        other = threading.Thread(target=judge)
        with device_turn(OPENCL):
            other.start()
            other.join(2.5)
            assert ends == [] and log.read_text() == ""
        other.join()
    finally:
        seat.close()
    assert ends == ["all of it took longer than 0 s"]


def test_a_machine_that_cannot_judge_takes_nothing(store, log, pool):
    number = hand_in(store, "right")
    running = pool(judge=Obedient(log, broken="there is no GPU"))
    wait(lambda: any("no GPU" in each.words for each in store.workers()))
    assert store.submission(number).attempts == 0 and running.alive() == 0


def test_stopping_gives_back_what_was_begun(store, pool):
    number = hand_in(store, "sleep 60")
    running = pool()
    wait(lambda: store.submission(number).words == "compiling")
    assert running.alive() == 1
    running.stop()
    found = store.submission(number)
    assert (found.state, found.attempts, running.alive()) == ("waiting", 0, 0)
    assert store.workers() == []


def test_a_worker_that_died_while_it_waited_costs_nobody_a_try(store, log, pool):
    running = pool()
    (attendant,) = running.attendants
    wait(running.alive)
    attendant.seat.process.kill()
    number = hand_in(store, "once")
    wait(lambda: all_done(store))
    found = store.submission(number)
    assert (found.judged.outcome, found.attempts) == ("right", 2)
    assert log.read_text().splitlines() == 2 * ["once on opencl"]


def test_marks_are_timed_once_while_nobody_waits(store, log, pool):
    task = replace(TASK, marks=("direct", "tuned"))
    number = hand_in(store, "right 1")
    pool(task)
    wait(lambda: store.marks(task))
    pool(task).stop()
    assert store.submission(number).state == "done" and store.marks(task).where == HERE
    assert log.read_text().splitlines() == ["right 1 on opencl", "marks of first"]


@pytest.mark.parametrize("what", ["die", "problem"])
def test_marks_that_cannot_be_timed_hold_nobody_up(store, log, pool, what):
    task = replace(TASK, title=what, marks=("direct",))
    pool(task)
    wait(lambda: log.read_text())
    number = hand_in(store, "right 1")
    wait(lambda: all_done(store))
    assert store.submission(number).attempts == 1 and store.marks(task) is None
    assert log.read_text().splitlines() == ["marks of first", "right 1 on opencl"]


def test_marks_give_way_to_whoever_hands_in(store, log, pool):
    pool(replace(TASK, title="slow", marks=("direct",)))
    wait(lambda: log.read_text())
    hand_in(store, "right 1")
    wait(lambda: log.read_text().count("marks") == 2)
    expected = ["marks of first", "right 1 on opencl", "marks of first"]
    assert all_done(store) and log.read_text().splitlines() == expected


def test_marks_give_way_in_the_middle_of_a_step_that_says_nothing(log):
    seat, heard = LocalSeat(OPENCL, Obedient(log)), []

    def give_way(words: str) -> None:
        heard.append(words)
        raise Lost("somebody waits")

    try:
        seat.open([TASK])
        with pytest.raises(Lost, match="somebody waits"):
            seat.marks(replace(TASK, title="silent", marks=("direct",)), give_way)
    finally:
        seat.close()
    assert heard == [""]


def test_a_full_disk_delays_a_verdict_and_loses_nothing(store, pool, monkeypatch):
    finish, refused = store.finish, []

    def full(*given: object) -> bool:
        if len(refused) < 3:
            refused.append(given)
            raise TilewrightError("cannot write class.sqlite: database or disk is full")
        return finish(*given)

    monkeypatch.setattr(store, "finish", full)
    number = hand_in(store, "right 1")
    pool()
    wait(lambda: all_done(store))
    assert len(refused) == 3 and store.submission(number).attempts == 1


def test_whatever_happens_to_whoever_attends_there_is_another_try(store, log, capsys):
    tries = []

    def seat(device: Device) -> LocalSeat:
        tries.append(device)
        if len(tries) == 1:
            raise OSError("no more processes")
        return LocalSeat(device, Obedient(log))

    number = hand_in(store, "right 1")
    attendant = Attendant(store, {"first": TASK}, Place(OPENCL, frozenset({"opencl"})), seat, 0.05)
    attendant.start()
    try:
        wait(lambda: all_done(store))
    finally:
        attendant.stop()
    assert store.submission(number).attempts == 1
    assert f"OSError: no more processes; all of it is in {store.log}" in capsys.readouterr().err
    assert 'raise OSError("no more processes")' in store.log.read_text()


class FakeSeat:
    """A seat in this thread, that does as it was told."""

    def __init__(self, where: Where = HERE) -> None:
        self.where, self.marked = where, 0

    def open(self, tasks: Collection[Task]) -> Where:
        return self.where

    def judge(self, task: Task, files: Mapping[str, bytes], tell: Tell) -> Judged:
        tell("compiling")
        raise Mishap("Traceback (most recent call last):\nKeyError: 'bias'\n")

    def marks(self, task: Task, tell: Tell) -> dict[str, Judged]:
        self.marked += 1
        if self.marked == 3:
            raise TilewrightError("no marks now")
        return {name: right() for name in task.marks}

    def close(self) -> None:
        pass


@contextmanager
def attended(store: Store, task: Task, seat: FakeSeat) -> Iterator[None]:
    place = Place(OPENCL, frozenset({"opencl"}))
    attendant = Attendant(store, {"first": task}, place, lambda device: seat, 0.01)
    attendant.start()
    try:
        yield
    finally:
        attendant.stop()


def test_a_mistake_of_the_judge_is_a_line_for_the_student_and_all_of_it_in_the_log(store):
    number = hand_in(store, "right 1")
    with attended(store, TASK, FakeSeat()):
        wait(lambda: all_done(store))
    found = store.submission(number).judged
    first, second = store.latest("mishap", 9)[::-1]
    assert found.outcome == "stopped" and "KeyError" not in found.reason
    (reference,) = re.findall(r"tell your teacher: reference (\w{8})\)$", found.reason)
    assert f"reference {reference}: worker opencl" in second.words != first.words
    assert f"which judges {number}" in second.words and "KeyError: 'bias'" in second.words
    assert store.log.read_text().count("KeyError: 'bias'\n") == 2


def test_marks_are_timed_again_at_a_teachers_wish_and_with_another_driver(store):
    task, seat = replace(TASK, marks=("direct",)), FakeSeat()
    with attended(store, task, seat):
        wait(lambda: store.marks(task))
        first = store.marks(task)
        store.ask_marks("first", "tina")
        wait(lambda: store.marks(task) != first)
        again = store.marks(task)
        assert again.marks == first.marks and (first.asked, seat.marked) == (0, 2)
        store.ask_marks("first", "tina")
        wait(lambda: seat.marked == 3)
    assert store.marks(task) == again  # where it fails, the old ones stand
    newer = FakeSeat(structs.replace(HERE, driver="driver 2"))
    with attended(store, task, newer):
        wait(lambda: store.marks(task) != again)
    assert store.marks(task).where.driver == "driver 2" and newer.marked == 1


def test_a_device_has_one_worker():
    tasks = [
        replace(TASK, name=str(index), device=Device.parse(name))
        for index, name in enumerate(("cuda", "cuda:0", "cuda:1", "opencl"))
    ]
    found = {str(place.device): place.serves for place in places(tasks)}
    assert sorted(found.values(), key=sorted) == [
        {"cuda", "cuda:0"},
        {"cuda", "cuda:1"},
        {"opencl"},
    ]
    one = places(tasks[:1], [Device("cuda", 0), Device("cuda", 1), Device("cuda", 0)])
    assert [(str(place.device), place.serves) for place in one] == [
        ("cuda:0", {"cuda"}),
        ("cuda:1", {"cuda"}),
    ]
    with pytest.raises(TilewrightError, match="task 2 is judged on cuda:1, and no worker has it"):
        places(tasks, [Device("cuda"), OPENCL])


def server(folder: Path, log: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SERVER, str(folder), str(log)], cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_server_killed_at_work_loses_nothing_and_leaves_nobody_behind(tmp_path, log):
    folder = class_folder(tmp_path / "class")
    with opened(folder) as (_, store):
        cut, after = hand_in(store, "dawdle"), hand_in(store, "right 1", "ben")
    first = server(folder, log)
    try:
        assert first.stdout.readline() == "ready\n"
        with pytest.raises(TilewrightError, match="has a server already"), opened(folder):
            pass
        wait(lambda: log.read_text())
        (worker,) = children(first.pid)
    finally:
        first.kill()
        first.wait()
    wait(lambda: state(worker) == "Z")
    second = server(folder, log)
    try:
        wait(lambda: all_done(store))
    finally:
        second.kill()
        second.wait()
    found = [store.submission(number) for number in (cut, after)]
    assert [(each.judged.outcome, each.attempts) for each in found] == [("right", 2), ("right", 1)]
    lines = log.read_text().splitlines()
    assert sorted(lines) == ["dawdle on opencl", "dawdle on opencl", "right 1 on opencl"]


def children(process: int) -> list[int]:
    """Those that sit and judge."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.joinpath("stat").exists():
            fields = entry.joinpath("stat").read_text().rpartition(")")[2].split()
            command = entry.joinpath("cmdline").read_bytes()
            if int(fields[1]) == process and b"spawn_main" in command:
                found.append(int(entry.name))
    return found


def state(process: int) -> str:
    """As the system has it; Z of one that is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"
