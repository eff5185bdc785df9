"""A class's folder: what it says, and every mistake in it at once."""

from __future__ import annotations

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.classroom.made import NOW, class_folder
from tests.examples import CHARACTERS, examples
from tilewright.classroom.course import Late, Task, read_course
from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device

FULL = """
title = "Tiles"
text = "Make it *fast*."
network = "ece408-2017"
device = "cuda:1"
images = 100
batch = 10
against = "shared"
seed = 3
limit = 60
repeats = 5
points = "min(100, 25 * baseline // time)"
most_points = 50
opens = "2026-11-01T08:00:00+01:00"
closes = 2026-12-01T18:00:00Z
late = { percent_a_day = 10, days = 3 }
marks = ["direct", "tuned", "torch"]
"""


def test_a_class_is_what_its_files_say(tmp_path):
    course = read_course(
        class_folder(tmp_path / "c", {"tiles": FULL}, 'invite = "come-in-please"\n')
    )
    assert (course.title, course.names, course.teachers) == ("Convolutions", "pseudonyms", {"tina"})
    assert course.people == {"anna": "Anna A.", "ben": "Ben B.", "tina": "tina"}
    assert course.invite == "come-in-please" and course.state == tmp_path / "c" / "state"
    task = course.tasks["tiles"]
    assert task.device == Device("cuda", 1) and task.marks == ("direct", "tuned", "torch")
    assert task.opens == datetime.datetime(2026, 11, 1, 7, tzinfo=datetime.UTC)
    assert task.closes == datetime.datetime(2026, 12, 1, 18, tzinfo=datetime.UTC)
    assert task.late == Late(10, 3) and task.repeats == 5
    assert task.formula.value({"baseline": 8, "time": 4}) == 50


def test_a_task_has_defaults(tmp_path):
    course = read_course(class_folder(tmp_path / "c"))
    assert course.tasks["first"] == Task(name="first", title="The first")


def test_every_mistake_is_told_at_once(tmp_path):
    bad = {
        "one": 'titel = "x"\ndevice = "gpu"\nimages = 0\npoints = "10 * speed"\n',
        "two": 'network = "ece40"\nagainst = "tund"\nmarks = ["serial"]\nbatch = true\n',
        "three": 'opens = "2026-12-01"\ncloses = "soon"\nlate = { days = 2 }\n',
        "far": 'opens = 0001-01-01T00:00:00+14:00\ncloses = "9999-12-31T23:59:59-14:00"\n',
        "four": 'opens = 2026-12-01T00:00:00Z\ncloses = 2026-11-01T00:00:00Z\nstart = "none.cl"\n',
        "five": "title =",
        "Six!": 'device = "cpu"',
        "seven": 'points = "100 // (time - 1)"',
    }
    folder = class_folder(tmp_path / "c", bad)
    (folder / "class.toml").write_text('title = ""\nnames = "pseudonym"\nteacher = ["x"]\n')
    (folder / "roster.csv").write_text("login,name\n../x,X\nanna,A\nANNA,A\nben\ncarl,C\x1b[2J\n")
    with pytest.raises(TilewrightError) as raised:
        read_course(folder)
    told = str(raised.value)
    for line in (
        "class.toml: title: it is empty",
        "class.toml: names: 'pseudonym': did you mean 'pseudonyms'?",
        "class.toml: teacher: no such key: did you mean 'teachers'?",
        "class.toml: teachers: a class has at least one",
        "roster.csv: line 2: '../x' is no login",
        "roster.csv: line 4: anna is there twice",
        "roster.csv: line 5: a login and a name are meant, and there are 1 cells",
        "roster.csv: line 6: the name of carl: it has characters that cannot be shown",
        "tasks/one.toml: titel: no such key: did you mean 'title'?",
        "tasks/one.toml: device: unknown device 'gpu'",
        "tasks/one.toml: images: 0 is not from 1 to 1,000,000",
        "tasks/one.toml: points: unknown size 'speed'",
        "tasks/two.toml: network: unknown network 'ece40'",
        "tasks/two.toml: against: unknown rung 'tund'",
        "tasks/two.toml: marks: rung 'serial' does not run on opencl",
        "tasks/two.toml: batch: a whole number is meant, not True",
        "tasks/three.toml: opens: 2026-12-01T00:00:00 has no zone",
        "tasks/three.toml: closes: 'soon' is no date",
        "tasks/three.toml: late.percent_a_day: it is missing",
        "tasks/three.toml: late: a rule for late work needs `closes`",
        "tasks/far.toml: opens: 0001-01-01T00:00:00+14:00 is in no year from 2000 to 2999",
        "tasks/far.toml: closes: 9999-12-31T23:59:59-14:00 is in no year from 2000 to 2999",
        "tasks/four.toml: closes: it closes before it opens",
        "tasks/four.toml: start: there is no file none.cl",
        "tasks/five.toml: ",
        "tasks/'Six!.toml': a task's name is of small letters",
        "tasks/Six!.toml: device: kernel files run on opencl or cuda, not on cpu",
        "tasks/seven.toml: points: division by zero",
    ):
        assert f"\n{line}" in f"\n{told}", line


@pytest.mark.parametrize("content", [b"\xff\xfe", b"title = [" + b"1" * 2**21])
def test_files_that_are_no_text_or_too_large_are_one_line(tmp_path, content):
    folder = class_folder(tmp_path / "c")
    (folder / "tasks" / "first.toml").write_bytes(content)
    with pytest.raises(TilewrightError) as raised:
        read_course(folder)
    assert len(str(raised.value).splitlines()) == 1 and "first.toml" in str(raised.value)


def test_a_folder_without_a_class_says_how_to_get_one(tmp_path):
    with pytest.raises(TilewrightError, match="tilewright class new"):
        read_course(tmp_path)


KEYS = (
    "title", "text", "network", "data", "device", "images", "batch", "against", "seed", "limit",
    "repeats", "points", "most_points", "opens", "closes", "late", "marks", "start", "teachers",
    "names", "invite", "roster",
)  # fmt: skip
written = st.recursive(
    st.integers(-(10**20), 10**20).map(str)
    | st.booleans().map(lambda found: str(found).lower())
    | st.sampled_from(
        ["nan", "inf", "1979-05-27", "07:32:00", "0001-01-01T00:00:00+14:00", '"opencl:999"',
         '"9999-12-31T23:59:59-14:00"', '"time // rank"', '"."', '"tasks"', '"torch"']
    )
    | st.text(CHARACTERS, max_size=8).map(json.dumps),
    lambda inner: st.lists(inner, max_size=2).map(lambda some: f"[{', '.join(some)}]")
    | st.tuples(st.sampled_from(["days", "percent_a_day", "x"]), inner).map(
        lambda pair: f"{{ {pair[0]} = {pair[1]} }}"
    ),
    max_leaves=3,
)  # fmt: skip
tables = st.dictionaries(st.sampled_from(KEYS), written, max_size=6).map(
    lambda pairs: "".join(f"{key} = {value}\n" for key, value in pairs.items())
)


@given(tables, tables, st.text(CHARACTERS, max_size=30))
@examples(40)
def test_whatever_is_written_is_a_class_or_mistakes(tmp_path_factory, top, task, roster):
    folder = tmp_path_factory.mktemp("drawn")
    (folder / "tasks").mkdir()
    (folder / "class.toml").write_text(top, errors="replace")
    (folder / "tasks" / "first.toml").write_text(task, errors="replace")
    (folder / "roster.csv").write_text(f"login,name\n{roster}", errors="replace")
    try:
        read_course(folder)
    except TilewrightError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("hours", "percent"), [(-1, 0), (0, 0), (0.01, 10), (24, 10), (24.1, 20), (72, 30), (73, 100)]
)
def test_each_day_that_has_begun_costs(hours, percent):
    task = Task(name="t", title="T", closes=NOW, late=Late(10, 3))
    moment = NOW + datetime.timedelta(hours=hours)
    assert task.late_percent(moment) == percent
    assert (task.closed(moment) is not None) == (percent == 100)


def test_outside_its_times_a_task_is_closed():
    day = datetime.timedelta(days=1)
    task = Task(name="t", title="T", opens=NOW, closes=NOW + day)
    assert task.closed(NOW - day) == "T opens on 2026-11-16 12:00 UTC"
    assert task.closed(NOW) is None and task.closed(NOW + day) is None
    assert task.closed(NOW + 2 * day) == "T closed on 2026-11-17 12:00 UTC"
