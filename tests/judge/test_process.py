"""Folders of workers, however they are filled, are counted and deleted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.judge.process import Oversized, check_folder, remove, sealed_memory

LEVELS, NAME = 1300, "ddd"  # more than functions may call each other, or a path's 4096 bytes hold


def deep(folder: Path) -> None:
    """Deeper than a path can name: made step by step."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(LEVELS):
        os.mkdir(NAME, dir_fd=place)
        inside = os.open(NAME, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inside
    os.close(place)


def test_a_folder_is_deleted_however_deep_it_is(tmp_path: Path):
    folder, outside = tmp_path / "scratch", tmp_path / "outside"
    folder.mkdir()
    outside.write_text("stays")
    (folder / "link").symlink_to(tmp_path)
    (folder / "closed").mkdir()
    (folder / "closed" / "file").write_text("x")
    (folder / "closed").chmod(0)
    deep(folder)
    remove(folder)
    assert list(tmp_path.iterdir()) == [outside]


def test_more_than_is_allowed_is_found(tmp_path: Path):
    (tmp_path / "a").write_bytes(bytes(1000))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(bytes(1000))
    check_folder([tmp_path], 2000, 3)
    with pytest.raises(Oversized, match="more than 1,999 bytes"):
        check_folder([tmp_path], 1999, 3)
    with pytest.raises(Oversized, match="more than 2 files"):
        check_folder([tmp_path], 2000, 2)


def test_what_is_too_deep_to_be_seen_is_too_much(tmp_path: Path):
    folder = tmp_path / "scratch"
    folder.mkdir()
    deep(folder)
    with pytest.raises(Oversized, match="cannot be looked into"):
        check_folder([folder], 10**9, 10**6)
    remove(folder)


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs Linux")
def test_shared_memory_cannot_be_taken_away():
    memory = sealed_memory(4096)
    for size in (0, 8192):
        with pytest.raises(PermissionError):
            os.ftruncate(memory, size)
    os.close(memory)
