"""A task whose file was taken away: what was handed in for it stays, and is worth what it was."""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import replace

import pytest

from tests.classroom.made import KERNEL, NOW, class_folder, right
from tilewright.classroom.course import read_course
from tilewright.classroom.export import to_csv, to_zip
from tilewright.classroom.handed_in import NotTaken
from tilewright.classroom.locks import opened

SECOND = """
title = "The second"
points = "7"
device = "cuda:1"
opens = "2026-11-01T00:00:00+05:45"
closes = "2026-11-16T00:00:00-03:30"
late = { percent_a_day = 50, days = 3 }
start = "second.cl"
marks = ["direct"]
"""


@pytest.fixture
def folder(tmp_path):
    made = class_folder(tmp_path / "class", {"first": "", "second": SECOND})
    (made / "tasks" / "second.cl").write_text("// begin")
    return made


def test_what_was_handed_in_outlives_its_task(folder, tmp_path):
    with opened(folder) as (course, store):
        second = course.tasks["second"]
        store.hand_in("anna", second, KERNEL, True, NOW)
        store.take("w", {"cuda:1"})
        store.finish(1, "w", right())
        store.hand_in("ben", second, KERNEL, True, NOW)
        assert course.gone == {}
    (folder / "tasks" / "second.toml").unlink()
    with opened(folder) as (course, store):
        assert list(course.tasks) == ["first"] and list(course.all_tasks) == ["first", "second"]
        kept = course.gone["second"]
        assert kept == replace(second, offered=False)
        with pytest.raises(NotTaken, match="The second: task no longer offered"):
            store.hand_in("anna", kept, KERNEL, True, NOW)
        rows = list(csv.DictReader(io.StringIO(to_csv(store, kept))))
        assert [(row["login"], row["points"]) for row in rows] == [("anna", "3"), ("ben", "0")]
        to_zip(course, store, tmp_path / "class.zip")
        with zipfile.ZipFile(tmp_path / "class.zip") as made:
            assert made.read("submissions/second/anna/1/files/mine.cl") == KERNEL["mine.cl"]
        assert store.take("w", {"opencl"}).number == 2  # any worker says that it is gone
    (folder / "tasks" / "second.cl").unlink()
    (folder / "tasks" / "second.toml").write_text(SECOND.replace('start = "second.cl"', ""))
    with opened(folder) as (course, store):
        assert course.gone == {} and course.tasks["second"].offered
    (folder / "tasks" / "second.toml").unlink()
    with opened(folder) as (course, _):
        assert course.gone["second"].start is None


def test_a_task_that_nobody_worked_for_goes_without_a_trace(folder):
    with opened(folder):
        pass
    (folder / "tasks" / "second.toml").unlink()
    with opened(folder) as (course, _):
        assert course.gone == {} and read_course(folder).tasks.keys() == {"first"}
