"""The store: people, hand-ins, the queue and claims; processes at once; kill -9; full disks."""

from __future__ import annotations

import datetime
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.classroom.made import KERNEL, NOW, TASK, right, store_with
from tests.copies import Copy, ready
from tests.examples import CHARACTERS
from tilewright.classroom.handed_in import MOST_BYTES, PART, NotTaken, kernel_of
from tilewright.classroom.people import SESSION
from tilewright.classroom.queue import Waiting, order
from tilewright.classroom.store import Store
from tilewright.database import Database
from tilewright.errors import TilewrightError

DEVICES = {"opencl"}


def student(pipe: Connection, path: Path, login: str) -> None:
    store = Store(path)
    ready(pipe)
    for index in range(25):
        files = {"mine.cl": f"{login} {index}".encode()}
        pipe.send(store.hand_in(login, TASK, files, True, NOW))


def worker(pipe: Connection, path: Path, name: str) -> None:
    store = Store(path)
    ready(pipe)
    while (taken := store.take(name, DEVICES)) is not None:
        assert store.finish(taken.number, name, right())
        pipe.send(taken.number)


@pytest.fixture
def store(tmp_path) -> Store:
    return store_with(tmp_path, "anna", "ben", "carla")


def hand_in(store: Store, login: str, count: int = 1, ranked: bool = True) -> list[int]:
    return [store.hand_in(login, TASK, KERNEL, ranked, NOW) for _ in range(count)]


def at_once(work: Callable[..., None], store: Store, *names: str) -> list[int]:
    """All that copies of these names did at the same time."""
    store.held.close()  # a copy would take the locks of what is open here for its own
    copies = [Copy(work, store.path, name) for name in names]
    for copy in copies:
        copy.go()
    return [number for copy in copies for number in copy.said()]


def killed(work: Callable[..., None], store: Store, name: str, seconds: float) -> list[int]:
    """All that one said to be done until it was killed."""
    store.held.close()  # as above
    copy = Copy(work, store.path, name)
    copy.go()
    time.sleep(seconds)
    copy.kill()
    return copy.said()


def test_what_is_handed_in_comes_back(store):
    files = {"mine.cl": b'#include "a/tile.h"\n\xc3\xa4', "a/tile.h": b"#define T 1"}
    number = store.hand_in("Anna", TASK, files, False, NOW)
    found = store.submission(number)
    assert (found.login, found.task, found.file, found.state) == (
        "anna",
        "first",
        "mine.cl",
        "waiting",
    )
    assert (
        found.handed_in == NOW and not found.ranked and found.size == sum(map(len, files.values()))
    )
    assert store.files(number) == files
    assert (
        store.of_person("anna")
        == store.of_person("anna", "first")
        == store.of_task("first")
        == [found]
    )
    assert store.of_person("anna", "second") == [] and store.submission(number + 1) is None
    assert [event.kind for event in store.events(0)] == ["waiting"]


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "there is no file"),
        ({"a.h": b""}, "there is none"),
        ({"a.cl": b"", "b.cu": b""}, "there are 2"),
        ({"../a.cl": b""}, "lead to no other folder"),
        ({"/etc/a.cl": b""}, "lead to no other folder"),
        ({"a.cl": b"", "b/../../c.h": b""}, "lead to no other folder"),
        ({"a.cl": b"", "b//c.h": b""}, "lead to no other folder"),
        ({"a.cl": b"", "b\\c.h": b""}, "lead to no other folder"),
        ({"\x1b[2J.cl": b""}, "lead to no other folder"),
        ({"a\n.cl": b""}, "lead to no other folder"),
        ({"a\u202e.cl": b""}, "lead to no other folder"),
        ({".a.cl": b""}, "lead to no other folder"),
        ({"a" * 200 + ".cl": b""}, "at most 100 characters"),
        ({"a.cl": b"", "b.py": b""}, "files end in"),
        ({"a.cl": b"\0"}, "is no text"),
        ({"a.cl": b" " * (MOST_BYTES + 1)}, "more than 1,048,576 bytes"),
        ({"a.cl": b"", **{f"{index}.h": b"" for index in range(20)}}, "20 are the most"),
        ({"a.cl": b"", "b.h": b"", "B.h": b""}, "the same name"),
        ({"b/a.cl": b""}, "in no folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_says_why_and_is_not_kept(store, files, why):
    with pytest.raises(NotTaken) as raised:
        store.hand_in("anna", TASK, files, True, NOW)
    assert why in str(raised.value) and str(raised.value).isprintable()
    assert len(str(raised.value)) < 200
    assert store.of_task("first") == [] and store.events(0) == []


@given(st.text(CHARACTERS, max_size=30) | st.from_regex(PART, fullmatch=True, alphabet=CHARACTERS))
def test_whatever_a_file_is_called_it_stays_in_its_folder(name):
    try:
        kernel_of({f"{name}.cl": b""})
    except NotTaken as error:
        assert str(error).isprintable()
        return
    folder = Path("/somewhere/safe")
    assert (folder / f"{name}.cl").resolve().parent == folder and name.isprintable()


def test_strangers_and_floods_are_refused(store, monkeypatch):
    with pytest.raises(NotTaken, match="no 'dora' in the class"):
        hand_in(store, "dora")
    monkeypatch.setattr("tilewright.classroom.submissions.MOST_WAITING", 3)
    hand_in(store, "anna", 3)
    with pytest.raises(NotTaken, match="3 of yours are waiting"):
        hand_in(store, "anna")
    assert len(hand_in(store, "ben")) == 1


def test_nothing_is_taken_outside_a_tasks_times(store):
    task = replace(TASK, opens=NOW, closes=NOW + datetime.timedelta(days=1))
    for days, problem in ((-1, "opens on"), (2, "closed on")):
        with pytest.raises(NotTaken, match=problem):
            store.hand_in("anna", task, KERNEL, True, NOW + datetime.timedelta(days=days))
    assert store.hand_in("anna", task, KERNEL, True, NOW) == 1


def test_secrets_are_shown_once_and_kept_as_hashes(store):
    code = store.new_code("anna")
    token, other = store.new_token("anna", "laptop"), store.new_token("ben", "")
    session = store.new_session("anna", NOW)
    assert store.person_of_code(" ANNA", code.upper()).login == "anna"
    assert store.person_of_code("ben", code) is None
    assert store.person_of_token(token).login == "anna" and store.person_of_token("") is None
    assert store.person_of_session(session, NOW).login == "anna"
    assert store.person_of_session(session, NOW + 2 * SESSION) is None
    with sqlite3.connect(store.path) as database:
        kept = "\n".join(database.iterdump())
    database.close()
    assert not any(secret in kept for secret in (code, token, other, session))
    assert store.without_code() == ["ben", "carla"]
    assert store.new_code("anna") != code and store.person_of_code("anna", code) is None
    store.end_session(session)
    assert store.person_of_session(session, NOW) is None
    store.revoke("anna")
    assert store.person_of_token(token) is None and store.person_of_token(other).login == "ben"


def test_the_class_is_as_its_files_say_and_keeps_its_pseudonyms(store):
    before = {person.login: person.pseudonym for person in store.people()}
    assert len(set(before.values())) == 3
    store.enrol_all({"anna": "Anna New", "dora": "Dora"}, frozenset({"dora"}))
    people = {person.login: person for person in store.people()}
    assert people["anna"].name == "Anna New" and people["anna"].pseudonym == before["anna"]
    assert people["dora"].teacher and len(people) == 4
    store.enrol_all({"anna": "Anna"}, frozenset({"anna"}))
    assert [person.login for person in store.people() if person.teacher] == ["anna"]


def test_a_login_that_is_taken_is_nobody_elses(store):
    code = store.register("Emil", "Emil E.")
    assert store.person_of_code("emil", code).name == "Emil E."
    with pytest.raises(TilewrightError, match="'emil' is taken"):
        store.register("EMIL", "Another")
    for login, name in (("../x", "X"), ("y" * 65, "Y"), ("z", "\x1b[2J"), ("z", "Z" * 101)):
        with pytest.raises(TilewrightError):
            store.register(login, name)


def test_who_leaves_the_roster_cannot_log_in_and_who_was_invited_can(store):
    invited, code = store.register("emil", "Emil"), store.new_code("ben")
    token = store.new_token("ben", "")
    (number,) = hand_in(store, "ben")
    store.enrol_all({"anna": "Anna"}, frozenset({"anna"}))
    assert store.person_of_code("ben", code) is None and store.person_of_token(token) is None
    assert store.person_of_code("emil", invited).login == "emil"
    assert store.submission(number).login == "ben"


def test_many_of_one_student_go_between_the_others(store):
    fifty = hand_in(store, "anna", 20)
    bens, carlas = hand_in(store, "ben", 2), hand_in(store, "carla", 1)
    expected = [fifty[0], bens[0], carlas[0], fifty[1], bens[1], *fifty[2:]]
    assert [each.number for each in store.waiting()] == expected
    assert [store.position(number) for number in expected] == list(range(1, 24))
    taken = []
    while (found := store.take("w", DEVICES)) is not None:
        taken.append(found.number)
        assert store.position(found.number) == 0
        assert store.finish(found.number, "w", right())
        assert store.position(found.number) is None
    assert taken == expected


@given(
    st.lists(st.sampled_from("abcd")), st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9))
)
def test_the_order_is_that_of_taking_one_by_one(logins, last):
    waiting = [Waiting(number, login) for number, login in enumerate(logins)]
    expected, left, turns = [], list(waiting), dict(last)
    while left:
        first = min(
            left, key=lambda each: (turns.get(each.login, 0), _oldest(waiting, each), each.number)
        )
        left.remove(first)
        turns[first.login] = 100 + len(expected)
        expected.append(first.number)
    assert order(waiting, {}, last) == expected


def _oldest(waiting: list[Waiting], of: Waiting) -> int:
    return min(each.number for each in waiting if each.login == of.login)


def test_a_worker_takes_only_what_its_devices_can_do(store):
    hand_in(store, "anna")
    assert store.take("w", {"cuda", "cuda:1"}) is None
    assert store.take("w", {"opencl", "opencl:1"}).worker == "w"


def test_a_task_that_moves_to_another_device_takes_along_what_waits(store):
    taken, waits = hand_in(store, "anna", 2)
    store.take("w", DEVICES)
    store.judged_on({"first": "cuda", "second": "cuda:1"})
    assert store.take("w", DEVICES) is None
    assert store.take("other", {"cuda"}).number == waits
    assert store.submission(taken).device == "opencl"


def test_a_worker_that_lost_its_claim_has_no_say(store):
    (number,) = hand_in(store, "anna")
    assert store.take("first", DEVICES).attempts == 1
    store.release("first", "it died")
    assert store.submission(number).state == "waiting"
    assert not store.finish(number, "first", right()) and not store.progress(number, "first", "x")
    assert store.take("second", DEVICES).attempts == 2
    assert not store.finish(number, "first", right(1.0))
    assert store.finish(number, "second", right(0.5))
    assert not store.finish(number, "second", right(2.0))
    assert store.submission(number).judged == right(0.5)
    assert [event.kind for event in store.events(0)].count("done") == 1


def test_what_was_cut_twice_is_done_and_says_so(store):
    (number,) = hand_in(store, "anna")
    for name in ("first", "second"):
        assert store.take(name, DEVICES) is not None
        store.release(name, f"{name} was killed")
    found = store.submission(number)
    assert found.state == "done" and found.judged.outcome == "stopped"
    assert found.judged.reason == (
        "its judging was cut short 2 times, at last because second was killed"
    )
    assert store.take("third", DEVICES) is None
    store.rerun(number, "tina")
    assert store.take("third", DEVICES).attempts == 1


def test_a_rerun_takes_the_word_from_whoever_is_at_it(store):
    (number,) = hand_in(store, "anna")
    store.take("w", DEVICES)
    store.rerun(number, "tina")
    assert not store.finish(number, "w", right())
    assert store.submission(number).judged is None
    with pytest.raises(TilewrightError, match="no submission 99"):
        store.rerun(99, "tina")


def test_disqualified_with_a_reason_and_taken_back(store):
    (number,) = hand_in(store, "anna")
    store.take("w", DEVICES)
    store.finish(number, "w", right())
    assert store.submission(number).counts
    store.disqualify(number, "copied", "tina")
    assert store.submission(number).disqualified == "copied" and not store.submission(number).counts
    store.disqualify(number, None, "tina")
    assert store.submission(number).counts
    assert [event.words for event in store.events(0)][-2:] == ["tina: copied", "tina"]


def test_numbers_order_whatever_clocks_say(store):
    first = store.hand_in("anna", TASK, KERNEL, True, NOW)
    second = store.hand_in("anna", TASK, KERNEL, True, NOW - datetime.timedelta(days=400))
    assert [each.number for each in store.waiting()] == [first, second]


def test_students_and_workers_at_once_lose_nothing_and_do_nothing_twice(store):
    said = at_once(student, store, "anna", "ben")
    judged = at_once(worker, store, "one", "two")
    assert sorted(said) == sorted(judged) == list(range(1, 51))
    assert all(each.state == "done" and each.attempts == 1 for each in store.of_task("first"))


@pytest.mark.parametrize("attempt", range(2))
def test_what_was_accepted_survives_kill_9(store, attempt):
    """Of whoever writes, at a drawn moment: all that was said to be in is there, whole, once."""
    said = killed(student, store, "anna", random.Random(attempt).uniform(0.01, 0.15))
    found = store.of_task("first")
    assert [each.number for each in found][: len(said)] == said
    assert len(found) - len(said) in (0, 1)  # one may be in that nobody was told of
    contents = Counter(store.files(each.number)["mine.cl"] for each in found)
    assert contents == {f"anna {index}".encode(): 1 for index in range(len(found))}
    said = killed(worker, store, "w", random.Random(attempt).uniform(0.005, 0.05))
    store.release_all("the server ended")
    found = store.of_task("first")
    assert {each.number for each in found if each.state == "done"} >= set(said)
    assert all(each.attempts <= 1 and each.state != "judging" for each in found)
    with sqlite3.connect(store.path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    database.close()


def test_a_full_disk_is_one_line_and_nothing_is_accepted(store, monkeypatch):
    hand_in(store, "anna")
    connect = Database._connect

    def small(self: Database, mode: str) -> sqlite3.Connection:
        database = connect(self, mode)
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    with monkeypatch.context() as patched:
        patched.setattr(Database, "_connect", small)
        with pytest.raises(TilewrightError, match=r"class\.sqlite: database or disk is full"):
            store.hand_in("ben", TASK, {"mine.cl": b" " * 500_000}, True, NOW)
    assert [each.login for each in store.of_task("first")] == ["anna"]
    assert len(hand_in(store, "ben")) == 1


def test_a_backup_is_whole_and_of_one_moment(store, tmp_path):
    hand_in(store, "anna", 3)
    target = tmp_path / "copy.sqlite"
    target.write_text("what was there before")
    store.backup(target)
    hand_in(store, "anna")
    copy = Store(target)
    assert len(copy.of_task("first")) == 3 and copy.files(1) == KERNEL
    copy.close()
    with pytest.raises(TilewrightError, match="cannot write"):
        store.backup(tmp_path / "none" / "copy.sqlite")
    assert {path.name for path in tmp_path.iterdir()} == {"state", "copy.sqlite"}


def test_workers_are_known_until_they_are_lost(store):
    store.beat("opencl-1", "opencl", "waits")
    store.beat("opencl-1", "opencl", "judges 3")
    (found,) = store.workers()
    assert (found.name, found.device, found.words) == ("opencl-1", "opencl", "judges 3")
    store.release("opencl-1", "gone")
    assert store.workers() == []


def test_another_programs_file_is_left_alone(tmp_path):
    path = tmp_path / "class.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE other (x)")
    database.close()
    with pytest.raises(TilewrightError, match="is not a class of Tilewright"):
        Store(path)


def test_steps_are_forgotten_when_they_have_led_somewhere(store):
    first, second = hand_in(store, "anna", 2)
    for number in (first, second):
        store.take("w1", {"opencl"})
        store.progress(number, "w1", "timing 1 of 9")
        store.progress(number, "w1", "timing 2 of 9")
        if number == first:
            seen = store.last_event()
            store.finish(number, "w1", right())
    # Who had read so far is told the rest, and numbers never come again.
    kinds = [(each.number, each.kind) for each in store.events(0) if each.number == first]
    assert kinds == [(first, "waiting"), (first, "judging"), (first, "done")]
    assert [each.kind for each in store.events(seen)] == ["done", "judging", *2 * ["progress"]]
    assert store.events(seen)[0].id == seen + 1
    store.release("w1", "it is gone")
    store.take("w2", {"opencl"})
    store.progress(second, "w2", "timing 3 of 9")
    store.release_all("the server ended")  # the second time: it is done
    assert "progress" not in [each.kind for each in store.events(0)]


def test_a_class_of_an_earlier_tilewright_gets_what_it_lacks(store):
    hand_in(store, "anna")
    with store.database.writing() as database:
        for table in ("tasks", "timed"):
            database.execute(f"DROP TABLE {table}")
    again = Store(store.path)
    assert again.marks(TASK) is None and hand_in(again, "anna") == [2]
