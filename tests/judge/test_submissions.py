"""What a class handed in, orderly or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.judge import submissions as room
from tilewright.judge.submissions import submissions


def test_a_file_or_a_folder_is_a_student(tmp_path: Path) -> None:
    (tmp_path / "anna.cl").write_text("a")
    (tmp_path / "ben.cu").write_text("b")
    (tmp_path / "carla" / "src").mkdir(parents=True)
    (tmp_path / "carla" / "src" / "mine.cl").write_text("c")
    (tmp_path / "carla" / "notes.txt").write_text("ignored")
    (tmp_path / "README.md").write_text("ignored")
    (tmp_path / ".hidden").mkdir()
    found = submissions(tmp_path)
    assert [(each.student, each.file, each.content) for each in found] == [
        ("anna", "anna.cl", b"a"),
        ("ben", "ben.cu", b"b"),
        ("carla", str(Path("carla", "src", "mine.cl")), b"c"),
    ]
    assert len({each.digest for each in found}) == 3


def test_students_of_one_name_keep_the_ends_of_their_files(tmp_path: Path) -> None:
    for name in ("anna.cl", "anna.cu"):
        (tmp_path / name).write_text("a")
    assert [each.student for each in submissions(tmp_path)] == ["anna.cl", "anna.cu"]


def test_what_cannot_be_judged_has_a_reason_and_the_others_stand(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("the teacher's")
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "anna.cl").write_text("a")
    (folder / "ben.cl").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "carla.cl")
    (folder / "dora").mkdir()
    (folder / "emil").mkdir()
    for name in ("one.cl", "two.cl"):
        (folder / "emil" / name).write_text("e")
    (folder / "fritz.cl").write_bytes(b" " * (room.LARGEST_FILE + 1))
    (folder / "gerd").mkdir()
    (folder / "gerd" / "mine.cl").symlink_to(tmp_path / "secret")
    (folder / "hans").symlink_to(tmp_path)
    found = {each.student: each for each in submissions(folder)}
    assert found["anna"].problem is None
    words = {
        "ben": "a link",
        "carla": "not a plain file",
        "dora": "no file that ends in",
        "emil": r"2 kernel files (one.cl, two.cl)",
        "fritz": "larger than",
        "gerd": "a link",
        "hans": "a link",
    }
    for student, word in words.items():
        assert word in str(found[student].problem) and found[student].content == b"", student


def test_a_folder_with_nothing_in_it_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="nothing to grade"):
        submissions(tmp_path)
    with pytest.raises(TilewrightError, match="cannot read"):
        submissions(tmp_path / "nowhere")


def test_names_that_steer_a_terminal_are_spelled_out(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m.cl").write_text("a")
    (found,) = submissions(tmp_path)
    assert found.student == "a\\x1b[31m" and "\x1b" not in found.file


def test_a_student_with_a_thousand_files_is_not_read_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "MOST_ENTRIES", 3)
    (tmp_path / "anna").mkdir()
    for name in ("a.cl", "b", "c", "d"):
        (tmp_path / "anna" / name).write_text("")
    (found,) = submissions(tmp_path)
    assert "more than 3 files" in str(found.problem)
