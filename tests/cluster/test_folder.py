"""What is left of a killed command is removed by the next, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tilewright.cluster import folder
from tilewright.cluster.folder import HELD, PREFIX, remove_dead, short_folder

HOLDS = """
import sys
from tilewright.cluster import folder
folder.LONGEST_FOLDER = 1000
with folder.short_folder() as made:
    print(made, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def above(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(folder, "LONGEST_FOLDER", 1000)
    return tmp_path


def test_a_folder_is_there_as_long_as_it_is_needed(above):
    with short_folder() as made:
        assert made.parent == above and made.name.startswith(PREFIX)
        remove_dead(above)
        assert list(made.iterdir()) == [made / HELD]
    assert list(above.iterdir()) == []


def test_of_a_killed_process_it_is_removed_by_the_next(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDS], env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    made = Path(child.stdout.readline().strip())
    assert made.parent == tmp_path
    remove_dead(tmp_path)
    assert made.is_dir()  # its process lives
    child.kill()
    child.communicate()
    remove_dead(tmp_path)
    assert not made.exists()


def dead(above: Path, name: str) -> Path:
    made = above / f"{PREFIX}{name}"
    made.mkdir()
    (made / HELD).touch()
    return made


def test_what_is_not_ours_stays(tmp_path, monkeypatch):
    """Without our file, behind a link, of another user."""
    bare, elsewhere = tmp_path / f"{PREFIX}bare", dead(tmp_path, "x").rename(tmp_path / "y")
    bare.mkdir()
    (tmp_path / f"{PREFIX}link").symlink_to(elsewhere)
    remove_dead(tmp_path)
    assert bare.is_dir() and (elsewhere / HELD).exists()
    another = dead(tmp_path, "another")
    with monkeypatch.context() as patch:
        patch.setattr(os, "getuid", lambda: 1 + another.stat().st_uid)
        remove_dead(tmp_path)
    assert another.is_dir()
    remove_dead(tmp_path)
    assert not another.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked at on Linux only")
def test_a_process_that_still_starts_would_make_it_once_more(tmp_path):
    used = dead(tmp_path, "used")
    process = subprocess.Popen(
        [sys.executable, "-Sc", "print('', flush=True); input()", f"--temp-dir={used}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline()  # it runs: before, it has no words yet
    try:
        remove_dead(tmp_path)
        assert used.is_dir()
    finally:
        process.kill()
        process.communicate()
    remove_dead(tmp_path)
    assert not used.exists()
