from __future__ import annotations

import errno
import os
import stat

import pytest

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write, check_writable


def test_the_name_appears_only_when_all_is_written(tmp_path):
    path = tmp_path / "out.json"
    with atomic_write(path) as file:
        file.write(b"half")
        assert not path.exists()
    assert path.read_bytes() == b"half"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, failure):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with pytest.raises(failure), atomic_write(path) as file:
        file.write(b"new")
        raise failure
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_full_disk_is_one_clear_line(tmp_path):
    with (
        pytest.raises(TilewrightError, match=r"cannot write .*No space left"),
        atomic_write(tmp_path / "out.json"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written(tmp_path):
    for path in (tmp_path / "no" / "out.json", tmp_path):
        with pytest.raises(TilewrightError, match="cannot write"):
            check_writable(path)
    with (
        pytest.raises(TilewrightError, match="cannot write"),
        atomic_write(tmp_path / "no" / "out.json"),
    ):
        pass
