"""`tilewright class`: a class written, checked, backed up and exported."""

from __future__ import annotations

import csv
import io
import re
import zipfile

import pytest

from tests.classroom.made import KERNEL, NOW, class_folder
from tilewright import cli
from tilewright.classroom.course import read_course
from tilewright.classroom.judging import KernelJudge
from tilewright.classroom.locks import opened
from tilewright.classroom.store import Store, store_of
from tilewright.errors import TilewrightError


@pytest.fixture
def folder(tmp_path):
    return class_folder(tmp_path / "class")


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = cli.main(["class", *map(str, arguments)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_new_class_works_as_it_is_written(tmp_path, capsys):
    code, out, _ = run(capsys, "new", tmp_path / "mine")
    assert code == 0 and "next: write your students into roster.csv" in out
    course = read_course(tmp_path / "mine")
    assert course.tasks["first"].start.read_text().startswith("/* tilewright")
    assert course.tasks["first"].marks == ("direct", "shared", "tuned")
    code, _, err = run(capsys, "new", tmp_path / "mine")
    assert (code, err) == (
        2,
        f"tilewright: {tmp_path / 'mine'} is there already, and stays as it is\n",
    )


def test_a_class_is_checked_with_what_this_machine_can_judge(folder, capsys, monkeypatch):
    (folder / "tasks" / "second.toml").write_text('closes = "2026-12-01T18:00:00Z"')

    def prepare(self: KernelJudge, task: object) -> None:
        if task.name == "second":
            raise TilewrightError("no GPU is here")

    monkeypatch.setattr(KernelJudge, "prepare", prepare)
    code, out, _ = run(capsys, "check", folder, "--format", "csv")
    assert code == 0
    assert "first,ece408,opencl,,,100,can be judged" in out
    assert "second,ece408,opencl,,2026-12-01 18:00 UTC,100,cannot be judged: no GPU is here" in out


def test_what_is_wrong_is_a_line_each(folder, capsys):
    (folder / "tasks" / "first.toml").write_text('images = "many"\nseed = 0')
    code, out, err = run(capsys, "check", folder)
    assert (code, out) == (2, "")
    assert "tasks/first.toml: images: a whole number is meant, not 'many'\n" in err
    assert "tasks/first.toml: seed: 0 is not from 1 to 1,000,000,000\n" in err


def test_codes_let_people_in_and_are_drawn_once(folder, capsys):
    code, out, _ = run(capsys, "codes", folder, "--format", "csv")
    codes = {row["login"]: row["code"] for row in csv.DictReader(io.StringIO(out))}
    assert code == 0 and set(codes) == {"anna", "ben", "tina"}
    store = store_of(read_course(folder))
    assert store.person_of_code("anna", codes["anna"]).login == "anna"
    _, out, _ = run(capsys, "codes", folder)
    assert out == "everybody has a code; name a login to draw a new one\n"
    _, out, _ = run(capsys, "codes", folder, "Anna")
    (again,) = re.findall(r"\b(?:\w{5}-){3}\w{5}\b", out)
    assert store.person_of_code("anna", codes["anna"]) is None
    assert store.person_of_code("anna", again).login == "anna"
    code, _, err = run(capsys, "codes", folder, "anna", "emil")
    assert (code, err) == (2, "tilewright: there is no 'emil' in the class\n")


def test_backup_and_export_while_the_class_is_served(folder, tmp_path, capsys):
    with opened(folder) as (course, store):
        store.hand_in("anna", course.tasks["first"], KERNEL, True, NOW)
        copy = tmp_path / "copy.sqlite"
        code, out, _ = run(capsys, "backup", folder, copy)
        assert code == 0 and out.startswith(f"wrote {copy}: ")
        assert Store(copy).files(1) == KERNEL and copy.stat().st_mode & 0o077 == 0
        files = [tmp_path / name for name in ("grades.csv", "results.json", "class.zip")]
        code, _, err = run(
            capsys, "export", folder, "--csv", files[0], "--gradescope", files[1], "--number", 1,
            "--zip", files[2],
        )  # fmt: skip
    assert (code, err) == (0, "")
    assert "anna,Anna A." in files[0].read_text() and '"score": 0' in files[1].read_text()
    assert "submissions/first/anna/1/files/mine.cl" in zipfile.ZipFile(files[2]).namelist()


def test_a_backup_needs_nothing_but_what_is_kept(folder, tmp_path, capsys):
    code, _, err = run(capsys, "backup", folder, tmp_path / "copy.sqlite")
    assert code == 2 and "has nothing to back up yet" in err and not (folder / "state").exists()
    store_of(read_course(folder))
    (folder / "class.toml").write_text("being edited")
    assert run(capsys, "backup", folder, tmp_path / "copy.sqlite")[0] == 0


def test_a_class_goes_back_to_a_backup_unless_it_is_served(folder, tmp_path, capsys):
    copy, before = tmp_path / "copy.sqlite", folder / "state" / "before-restore.sqlite"
    with opened(folder) as (course, store):
        store.hand_in("anna", course.tasks["first"], KERNEL, True, NOW)
        store.backup(copy)
        store.hand_in("ben", course.tasks["first"], KERNEL, True, NOW)
        code, _, err = run(capsys, "restore", folder, copy)
        assert code == 2 and "has a server already" in err
        assert len(store.of_task("first")) == 2
    assert run(capsys, "restore", folder, copy)[0] == 0
    with opened(folder) as (_, store):
        assert [each.login for each in store.of_task("first")] == ["anna"]
        assert store.files(1) == KERNEL
    assert len(Store(before).of_task("first")) == 2
    (tmp_path / "other").write_text("no database")
    for name, problem in (("other", "file is not a database"), ("none", "No such file")):
        code, _, err = run(capsys, "restore", folder, tmp_path / name)
        assert code == 2 and problem in err
    with opened(folder) as (_, store):
        assert len(store.of_task("first")) == 1


def test_a_restore_can_be_taken_back(folder, tmp_path, capsys):
    with opened(folder) as (course, store):
        store.backup(tmp_path / "copy.sqlite")
        store.hand_in("ben", course.tasks["first"], KERNEL, True, NOW)
    run(capsys, "restore", folder, tmp_path / "copy.sqlite")
    code, out, _ = run(capsys, "restore", folder, folder / "state" / "before-restore.sqlite")
    assert code == 0 and len(out.splitlines()) == 1
    with opened(folder) as (_, store):
        assert len(store.of_task("first")) == 1


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ((), "name what to write: --csv, --gradescope or --zip FILE"),
        (("--csv", "g.csv"), "name one with --task: first, second"),
        (("--csv", "g.csv", "--task", "frist"), "unknown task 'frist'; did you mean 'first'?"),
        (("--gradescope", "g.json"), "--gradescope is of one submission: name it with --number N"),
        (("--gradescope", "g.json", "--number", "9"), "there is no submission 9"),
        (("--csv", "none/g.csv"), "cannot write none/g.csv: No such file or directory"),
    ],
)
def test_what_cannot_be_exported_says_why(folder, tmp_path, monkeypatch, capsys, given, problem):
    (folder / "tasks" / "second.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "export", folder, *given) == (2, "", f"tilewright: {problem}\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("g.")] == []
