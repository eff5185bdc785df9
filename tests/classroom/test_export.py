"""A class taken away: tables, results for Gradescope, everything as a zip."""

from __future__ import annotations

import csv
import io
import json
import zipfile

import pytest

from tests.classroom.made import KERNEL, NOW, class_folder, right
from tilewright.classroom.course import read_course
from tilewright.classroom.export import gradescope, to_csv, to_zip
from tilewright.classroom.store import store_of
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged


@pytest.fixture
def course(tmp_path):
    points = 'points = "min(100, 25 * baseline // time)"\nmost_points = 200'
    return read_course(class_folder(tmp_path / "class", {"first": points}))


@pytest.fixture
def store(course):
    store = store_of(course)
    store.enrol("ben", "=HYPERLINK(1)")
    task = course.tasks["first"]
    for login, verdict in (("anna", right(0.001)), ("ben", Judged(outcome="wrong", reason="@x"))):
        number = store.hand_in(login, task, KERNEL | {"a/b.h": b""}, True, NOW)
        store.take("w", {"opencl"})
        store.finish(number, "w", verdict)
    store.hand_in("ben", task, KERNEL, True, NOW)
    return store


def test_a_row_a_student_and_no_formula_in_it(course, store):
    store.enrol("carla", "Carla")
    rows = list(csv.DictReader(io.StringIO(to_csv(store, course.tasks["first"]))))
    assert [row["login"] for row in rows] == ["anna", "ben", "carla"]
    anna, ben, carla = rows
    assert (anna["rank"], anna["points"], anna["most_points"], anna["outcome"]) == (
        "1",
        "50",
        "200",
        "right",
    )
    assert (anna["seconds"], anna["times"], anna["handed_in"]) == ("0.001", "2.0", NOW.isoformat())
    assert (ben["name"], ben["outcome"], ben["submissions"]) == (
        "'=HYPERLINK(1)",
        "not judged yet",
        "2",
    )
    assert (carla["outcome"], carla["points"], carla["number"]) == ("nothing handed in", "0", "")


def test_results_as_gradescope_reads_them(course, store):
    task = course.tasks["first"]
    made = json.loads(gradescope(store, task, store.submission(1)))
    assert made["score"] == 50 and made["tests"][0]["max_score"] == 200
    assert made["tests"][0]["status"] == "passed"
    assert (
        json.loads(gradescope(store, task, store.submission(2)))["tests"][0]["status"] == "failed"
    )
    store.disqualify(1, "copied", "tina")
    made = json.loads(gradescope(store, task, store.submission(1)))
    assert made["score"] == 0 and "disqualified: copied" in made["tests"][0]["output"]


def test_the_whole_class_as_a_zip(course, store, tmp_path):
    path = tmp_path / "class.zip"
    to_zip(course, store, path)
    with zipfile.ZipFile(path) as made:
        names = set(made.namelist())
        assert made.read("submissions/first/anna/1/files/mine.cl") == KERNEL["mine.cl"]
        assert made.testzip() is None
    assert names == {
        "class.toml", "roster.csv", "tasks/first.toml", "first.csv",
        *(f"submissions/first/{of}/{name}" for of in ("anna/1", "ben/2", "ben/3")
          for name in ("files/mine.cl", "results.json")),
        *(f"submissions/first/{of}/{name}" for of in ("anna/1", "ben/2")
          for name in ("files/a/b.h", "judged.json")),
    }  # fmt: skip
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(TilewrightError, match="cannot write"):
        to_zip(course, store, tmp_path / "none" / "class.zip")
