"""Times of rungs: kept with all that they depend on, and due again when any of it changes."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from msgspec import structs

from tests.classroom.made import HERE, TASK, right, store_with
from tilewright.classroom import marks

MARKED = replace(TASK, marks=("direct", "tuned"))


@pytest.fixture
def store(tmp_path):
    store = store_with(tmp_path, "anna")
    store.keep_marks(MARKED, HERE, 0, {"direct": right()})
    return store


def test_they_are_kept_with_date_and_device(store):
    found = store.marks(MARKED)
    assert found.marks == {"direct": right()} and found.where == HERE
    assert not store.marks_due(MARKED, HERE) and not store.marks_due(TASK, HERE)
    assert [(each.kind, each.task) for each in store.events(0)] == [("marks timed", "first")]
    assert found.taken == pytest.approx(store.events(0)[0].moment, abs=marks.datetime.timedelta(1))


@pytest.mark.parametrize("what", ["machine", "device", "driver"])
def test_another_place_has_its_own_and_the_old_ones_stand_until_then(store, what):
    assert store.marks_due(MARKED, structs.replace(HERE, **{what: "another"}))
    assert store.marks(MARKED) is not None


@pytest.mark.parametrize("change", [{"batch": 7}, {"network": "cifar10"}, {"marks": ("direct",)}])
def test_another_task_of_that_name_has_none(store, change):
    changed = replace(MARKED, **change)
    assert store.marks(changed) is None and store.marks_due(changed, HERE)


def test_another_tilewright_times_them_again(store, monkeypatch):
    monkeypatch.setattr(marks, "__version__", "99.0")
    assert store.marks_due(MARKED, HERE)


def test_a_network_that_was_written_anew_is_another(tmp_path, store):
    file = tmp_path / "net.json"
    file.write_text("{}")
    task = replace(MARKED, network=str(file))
    store.keep_marks(task, HERE, 0, {})
    assert not store.marks_due(task, HERE)
    os.utime(file, ns=(1, 1))
    assert store.marks_due(task, HERE)


def test_a_teacher_may_ask(store):
    store.ask_marks("second", "tina")
    assert not store.marks_due(MARKED, HERE)
    store.ask_marks("first", "tina")
    assert store.marks_due(MARKED, HERE) and store.marks(MARKED) is not None
    store.keep_marks(MARKED, HERE, store.marks_asked("first"), {})
    assert not store.marks_due(MARKED, HERE)
