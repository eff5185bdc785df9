"""What is kept stays: filters, round trips, writers at once, kill -9, files that are not ours."""

from __future__ import annotations

import datetime
import os
import random
import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.copies import Copy, ready
from tests.examples import examples
from tests.results import made
from tilewright.database import Database
from tilewright.errors import TilewrightError
from tilewright.results import document
from tilewright.results.history import APPLICATION, FORM, Filter, History, utc


def writer(pipe, path, name, count):
    history = History(path)
    ready(pipe)
    for index in range(count):
        pipe.send(history.add(made.run_record(data=f"{name} {index}")))


@pytest.fixture
def history(tmp_path):
    return History(tmp_path / "deep" / "history.sqlite")


def sound(path):
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    database.close()


@given(st.lists(made.runs | made.ladders, max_size=4))
@examples(20)
def test_what_is_kept_comes_back(tmp_path_factory, records):
    history = History(tmp_path_factory.mktemp("history") / "h.sqlite")
    numbers = [history.add(record) for record in records]
    assert numbers == sorted(set(numbers))
    assert [history.read(number) for number in numbers] == records
    assert [entry.id for entry in history.entries()] == numbers


@given(made.runs | made.ladders)
@examples(50)
def test_a_record_is_the_same_after_json(record):
    for text in (document.text(record), document.line(record)):
        assert document.decode(text, type(record)) == record


wanted = st.builds(
    Filter,
    verb=st.none() | st.sampled_from(["run", "ladder", "profile"]),
    network=st.none() | made.networks,
    device=st.none() | made.devices,
    since=st.none() | made.dates.map(datetime.datetime.fromisoformat),
    rung=st.none() | made.labels,
    last=st.none() | st.integers(1, 3),
)


def fits(record, some: Filter) -> bool:
    rungs = {*record.rungs, *(rung.partition(" ")[0] for rung in record.rungs)}
    devices = {record.device, record.device.partition(":")[0]}
    return (
        some.verb in (None, record.verb())
        and some.network in (None, record.network)
        and (some.device is None or some.device in devices)
        and (some.rung is None or some.rung in rungs)
        and (some.since is None or record.environment.date >= utc(some.since))
    )


def test_filters_are_those_of_plain_python(tmp_path_factory):
    history = History(tmp_path_factory.mktemp("history") / "h.sqlite")
    kept = {}

    @given(made.runs | made.ladders, st.lists(wanted, min_size=5, max_size=5))
    @examples(30)
    def check(record, filters):
        kept[history.add(record)] = record
        for some in filters:
            expected = [number for number, each in kept.items() if fits(each, some)]
            found = [entry.id for entry in history.entries(some)]
            assert found == (expected if some.last is None else expected[-some.last :])

    check()


def test_the_list_has_what_is_asked_for(history):
    history.add(made.ladder_record())
    (entry,) = history.entries()
    assert (entry.id, entry.verb, entry.network, entry.device) == (1, "ladder", "small", "cpu")
    assert entry.date == "2026-11-15T12:11:47+00:00"
    assert entry.machine == "a CPU, 2 cores, a GPU"
    assert entry.headline == "80,000 images/s on fused"


def test_names_of_files_may_have_half_a_character(history):
    broken = os.fsdecode(b"net-\xff.json")
    number = history.add(
        made.run_record(
            network=broken, environment=made.environment(command=("tilewright", broken))
        )
    )
    assert history.read(number).network == "net-?.json"
    assert history.entries(Filter(network=broken))[0].id == number


def test_writers_at_once_lose_nothing(history):
    """From an empty folder on: the file is made by whoever comes first."""
    copies = [Copy(writer, history.path, str(name), 15) for name in range(3)]
    for copy in copies:
        copy.go()
    numbers = [number for copy in copies for number in copy.said()]
    assert sorted(numbers) == list(range(1, 46))
    kept = {history.read(number).data for number in numbers}
    assert kept == {f"{name} {index}" for name in range(3) for index in range(15)}
    sound(history.path)


@pytest.mark.parametrize("attempt", range(2))
def test_what_was_said_to_be_kept_survives_kill_9(history, attempt):
    copy = Copy(writer, history.path, "doomed", 100_000)
    copy.go()
    numbers = [copy.pipe.recv() for _ in range(random.randrange(1, 20))]
    time.sleep(random.random() / 50)
    copy.kill()
    numbers += copy.said()
    assert numbers == list(range(1, len(numbers) + 1))
    for number in numbers:
        assert history.read(number).data == f"doomed {number - 1}"
    sound(history.path)
    assert history.add(made.run_record()) > numbers[-1]


def test_a_newer_file_is_refused_and_left_alone(history):
    history.add(made.run_record())
    with sqlite3.connect(history.path) as database:
        database.execute(f"PRAGMA user_version = {FORM + 1}")
    database.close()
    for use in (history.entries, lambda: history.read(1), lambda: history.add(made.run_record())):
        with pytest.raises(TilewrightError, match=r"history\.sqlite was written by a newer"):
            use()
    with sqlite3.connect(history.path) as database:
        assert database.execute("SELECT count(*) FROM records").fetchone() == (1,)
    database.close()


def test_a_database_of_others_is_left_alone(tmp_path):
    path = tmp_path / "mail.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mail (subject TEXT)")
    database.close()
    before = path.read_bytes()
    for use in (History(path).entries, lambda: History(path).add(made.run_record())):
        with pytest.raises(TilewrightError, match=r"mail\.sqlite is not a history of Tilewright"):
            use()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"no database at all" * 100, b"SQLite format 3\0" + b"\xff" * 5000]
)
def test_what_is_no_database_is_one_line(tmp_path, content):
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    for use in (History(path).entries, lambda: History(path).add(made.run_record())):
        with pytest.raises(TilewrightError, match=r"^cannot (read|write) .*notes\.txt: ") as caught:
            use()
        assert "\n" not in str(caught.value)
    assert path.read_bytes() == content


def test_damage_is_one_line(history):
    for _ in range(30):
        history.add(made.ladder_record())
    content = bytearray(history.path.read_bytes())
    content[4096:-4096] = b"\xaa" * (len(content) - 8192)
    history.path.write_bytes(content)
    with pytest.raises(TilewrightError, match=r"cannot read .*history\.sqlite: database disk"):
        history.entries()


def test_an_empty_file_becomes_a_history(tmp_path):
    path = tmp_path / "new"
    path.touch()
    assert History(path).entries() == []
    with pytest.raises(TilewrightError, match="has no record 1"):
        History(path).read(1)
    assert History(path).add(made.run_record()) == 1
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION,)
    database.close()


def test_a_folder_is_no_history(tmp_path):
    with pytest.raises(TilewrightError, match="it is a folder"):
        History(tmp_path).add(made.run_record())


def test_nothing_is_made_by_looking(history):
    assert history.entries() == []
    assert not history.path.parent.exists()
    with pytest.raises(TilewrightError, match="No such file"):
        history.read(1)


def test_a_full_disk_is_one_line_and_keeps_what_was_there(history, monkeypatch):
    history.add(made.run_record())
    connect = Database._connect

    def small(self, mode):
        database = connect(self, mode)
        pages = database.execute("PRAGMA page_count").fetchone()[0]
        database.execute(f"PRAGMA max_page_count = {pages}")
        return database

    monkeypatch.setattr(Database, "_connect", small)
    with pytest.raises(TilewrightError, match=r"cannot write .*sqlite: database or disk is full"):
        history.add(made.run_record(data="x" * 100_000))
    monkeypatch.undo()
    assert [entry.id for entry in history.entries()] == [1]
    sound(history.path)


def test_a_file_that_can_only_be_read_is_one_line(history, monkeypatch):
    """Opened like that, not made so: a test may run as root, who can write anything."""
    history.add(made.run_record())
    connect = Database._connect
    monkeypatch.setattr(Database, "_connect", lambda self, mode: connect(self, "ro"))
    with pytest.raises(
        TilewrightError, match=r"cannot write .*sqlite: attempt to write a readonly"
    ):
        history.add(made.run_record())
    assert len(history.entries()) == 1


def test_a_folder_that_nobody_can_write_to_is_read(history, monkeypatch):
    """Told, not tried: a test may run as root, who can write anywhere."""
    history.add(made.run_record())
    opened = []
    connect = sqlite3.connect
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    monkeypatch.setattr(
        sqlite3, "connect", lambda name, **more: opened.append(name) or connect(name, **more)
    )
    assert len(history.entries()) == 1
    assert opened[0].endswith("?mode=ro&immutable=1")


def test_records_of_later_versions_and_broken_ones_are_named(history):
    for _ in range(2):
        history.add(made.run_record())
    with sqlite3.connect(history.path) as database:
        database.execute("UPDATE records SET schema = 'tilewright.run/9' WHERE id = 1")
        database.execute("UPDATE records SET document = '{\"schema\":1}' WHERE id = 2")
    database.close()
    assert len(history.entries()) == 2
    with pytest.raises(TilewrightError, match=r"record 1 is a tilewright\.run/9, which this"):
        history.read(1)
    with pytest.raises(TilewrightError, match="record 2 is broken: "):
        history.read(2)
    with pytest.raises(TilewrightError, match="has no record 3"):
        history.read(3)


def test_removing_is_all_or_nothing_and_numbers_are_not_used_again(history):
    for _ in range(3):
        history.add(made.run_record())
    with pytest.raises(TilewrightError, match="has no record 7"):
        history.remove([2, 7])
    assert len(history.entries()) == 3
    history.remove([2, 3])
    assert [entry.id for entry in history.entries(Filter(rung="fused"))] == [1]
    assert history.add(made.run_record()) == 4
