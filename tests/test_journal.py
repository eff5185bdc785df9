"""What a long job keeps: all of it, over kills, and only for what it is about."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.journal import Journal, Line

ABOUT = {"device": "some GPU", "driver": "1.0"}
LINES: list[Line] = [{"part": "conv1", "seconds": [1e-3]}, {"part": "conv2", "problem": "no"}]


def opened(path: Path, **about: str) -> Journal:
    return Journal(path, "tilewright.test/1", {**ABOUT, **about})


def written(path: Path) -> bytes:
    journal = opened(path)
    for line in LINES:
        journal.append(line)
    journal.close()
    return path.read_bytes()


def test_what_was_kept_is_there_the_next_time(tmp_path: Path) -> None:
    written(tmp_path / "journal")
    assert opened(tmp_path / "journal").lines == LINES


def test_cut_off_anywhere_it_goes_on_with_the_lines_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    whole = written(path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        journal = opened(path)
        kept = LINES[: max(0, whole[:size].count(b"\n") - 1)]
        assert journal.lines == kept
        journal.append({"part": "more"})
        journal.close()
        assert opened(path).lines == [*kept, {"part": "more"}]


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal = opened(path)
    with pytest.raises(TilewrightError, match="is being written by another process"):
        opened(path)
    journal.append(LINES[0])
    journal.close()
    assert opened(path).lines == LINES[:1]


def test_a_journal_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    before = written(path)
    with pytest.raises(TilewrightError, match=r"another driver \(1.0, now 2.0\)"):
        opened(path, driver="2.0")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"hello\n", b"[]\n", b'{"schema": "x"}\n', b"\xff\n", b"[" * 10**5 + b"\n"]
)
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal"
    path.write_bytes(content)
    with pytest.raises(TilewrightError, match="no journal of this kind"):
        opened(path)
    assert path.read_bytes() == content


def test_a_line_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(written(path).replace(b'{"part": "conv2"', b'"part": "conv2"'))
    with pytest.raises(TilewrightError, match="journal, line 3: not as it was written"):
        opened(path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="cannot keep a journal"):
        opened(tmp_path / "no" / "journal")


def test_a_full_disk_is_an_error(tmp_path: Path) -> None:
    journal = opened(tmp_path / "journal")
    journal.file = Path("/dev/full").open("wb")  # noqa: SIM115 - the journal's own to close
    with pytest.raises(TilewrightError, match="journal: No space left"):
        journal.append({})
    assert not journal.lines
