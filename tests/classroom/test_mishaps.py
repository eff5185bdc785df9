"""The log of what nobody expected: bounded, private, and never in the way."""

from __future__ import annotations

import pytest

from tests.classroom.made import store_with
from tilewright.classroom import mishaps


@pytest.fixture
def store(tmp_path):
    return store_with(tmp_path, "anna")


def test_a_mishap_is_found_by_its_reference(store):
    reference = store.mishap("worker one", "Traceback\n  in a line \udc80\nKeyError: 1\n")
    assert (
        f" reference {reference}: worker one\nTraceback\n  in a line ?\nKe" in store.log.read_text()
    )
    (event,) = store.latest("mishap", 9)
    assert event.words == f"reference {reference}: worker one: KeyError: 1"


def test_the_log_does_not_grow_for_ever(store, monkeypatch):
    monkeypatch.setattr(mishaps, "MOST_BYTES", 1000)
    monkeypatch.setattr(mishaps, "MOST_LISTED", 4)
    for number in range(12):
        store.mishap(f"worker {number}", 30_000 * "x" if number == 5 else 300 * "y")
    files = sorted(store.log.parent.glob("errors.log*"))
    assert len(files) == 1 + mishaps.MOST_FILES
    assert max(file.stat().st_size for file in files) < 1000 + mishaps.LONGEST
    assert len(store.latest("mishap", 99)) == 4 and "worker 11" in store.log.read_text()


def test_where_it_cannot_be_written_there_is_a_word_and_a_reference(store, capsys):
    store.log.mkdir()
    assert len(store.mishap("worker one", "KeyError: 2")) == 8
    assert f"cannot write {store.log}: Is a directory" in capsys.readouterr().err
