"""What a search keeps: all of it, over kills, and only for what it was timed for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.errors import TilewrightError
from tilewright.tune.journal import Journal
from tilewright.tune.search import Candidate, Tried

ABOUT = {"device": "some GPU", "driver": "1.0", "network": "ece408"}
ONE = Tried(Candidate("tuned", "fp32", (("order", (1, 2)), ("rows", 4))), (1e-3, 2e-3))
OTHER = Tried(Candidate("shared", "fp32"), problem="shared_conv does not fit")


def written(path: Path) -> bytes:
    journal = Journal(path, ABOUT)
    journal.keep("conv1", ONE)
    journal.keep("conv2", OTHER)
    journal.close()
    return path.read_bytes()


def test_what_was_kept_is_known_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "trials"
    written(path)
    again = Journal(path, ABOUT)
    assert again.known == {"conv1": {ONE.candidate: ONE}, "conv2": {OTHER.candidate: OTHER}}


def test_cut_off_anywhere_it_goes_on_with_the_lines_that_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "trials"
    whole = written(path)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        journal = Journal(path, ABOUT)
        assert sum(map(len, journal.known.values())) == max(0, whole[:size].count(b"\n") - 1)
        journal.keep("conv2", OTHER)
        journal.close()
        assert Journal(path, ABOUT).known["conv2"] == {OTHER.candidate: OTHER}


def test_trials_of_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "trials"
    before = written(path)
    with pytest.raises(TilewrightError, match=r"another driver \(1.0, now 2.0\)"):
        Journal(path, {**ABOUT, "driver": "2.0"})
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [{"seconds": [-1.0]}, {"seconds": ["x"]}, {"seconds": []}, {"options": 3}, {"problem": "no"},
     {"rung": None, "options": None}],
)  # fmt: skip
def test_a_line_that_is_no_trial_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "trials"
    lines = written(path).splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), **change}).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(TilewrightError, match="line 2: not a trial"):
        Journal(path, ABOUT)


@pytest.mark.parametrize("content", [b"hello\n", b"[]\n", b'{"schema": "x"}\n', b"\xff\n"])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "trials"
    path.write_bytes(content)
    with pytest.raises(TilewrightError, match="not a list of trials"):
        Journal(path, ABOUT)
    assert path.read_bytes() == content


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TilewrightError, match="cannot keep trials"):
        Journal(tmp_path / "no" / "trials", ABOUT)
