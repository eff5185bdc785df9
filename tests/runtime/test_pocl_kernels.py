"""Where PoCL keeps what it compiles: a folder that is ours, has room, and is as it was left."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.runtime import opencl, pocl_kernels
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl_runtime import OpenClRuntime
from tilewright.runtime.pocl_kernels import RECORD, drop_changed, record


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.setenv("POCL_CACHE_DIR", "")  # as if it were not there; it is put back afterwards
    monkeypatch.setattr(pocl_kernels, "_temporary", lambda: "temporary")
    monkeypatch.setattr(pocl_kernels.atexit, "register", lambda *given: None)


def test_kernels_are_kept_among_our_files(tmp_path, no_folder):
    assert pocl_kernels.keep_kernels(tmp_path / "a" / "b") is None
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert not list((tmp_path / "a" / "b").iterdir())


def test_the_user_may_say_where_kernels_are_kept(tmp_path, no_folder, monkeypatch):
    (tmp_path / "theirs").mkdir(mode=0o777)
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "theirs"))
    pocl_kernels.keep_kernels(tmp_path / "ours")
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "theirs")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("named", [False, True])
def test_a_folder_that_cannot_be_written_is_replaced_and_named(
    named, tmp_path, no_folder, monkeypatch
):
    (tmp_path / "file").write_text("")
    if named:
        monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file"))
    said = pocl_kernels.keep_kernels(tmp_path / "file")
    assert os.environ["POCL_CACHE_DIR"] == "temporary"
    assert said.startswith(f"PoCL cannot keep kernels in {tmp_path / 'file'} (")
    assert said.endswith(") and compiles them every time")


def test_a_full_disk_is_noticed_before_pocl_is(tmp_path, no_folder, monkeypatch):
    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pocl_kernels.tempfile, "TemporaryFile", lambda dir: Full())
    assert "(No space left on device)" in pocl_kernels.keep_kernels(tmp_path / "kernels")
    assert os.environ["POCL_CACHE_DIR"] == "temporary"


def test_a_disk_that_is_nearly_full(tmp_path, no_folder, monkeypatch):
    """PoCL ends the process when it cannot write what it compiled."""
    monkeypatch.setattr(pocl_kernels, "FREE", 2**62)
    assert "MiB are free there)" in pocl_kernels.keep_kernels(tmp_path / "kernels")
    assert os.environ["POCL_CACHE_DIR"] == "temporary"


def test_a_folder_that_others_can_write_to_is_not_trusted(tmp_path, no_folder):
    """What is found there is loaded and run."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "(others can write there)" in pocl_kernels.keep_kernels(tmp_path / "open")
    assert os.environ["POCL_CACHE_DIR"] == "temporary"


def test_no_folder_at_all_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file"))
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(pocl_kernels.tempfile, "tempdir", str(tmp_path))
    assert Path(pocl_kernels._temporary()).parent == tmp_path
    monkeypatch.setattr(pocl_kernels.tempfile, "tempdir", str(tmp_path / "nowhere"))
    said = pocl_kernels.keep_kernels(tmp_path / "ours")
    assert said.endswith(", nor in a temporary folder (No such file or directory)")
    monkeypatch.setattr(opencl, "kept_kernels", lambda: said)
    monkeypatch.setattr(opencl, "is_installed", lambda: True)
    monkeypatch.setattr(opencl, "devices", list)
    if not opencl.unusable():
        assert f"PoCL is installed and would run on the CPU, but does not start here: {said}" in (
            opencl.missing(OPENCL)
        )


@pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason=str(opencl.missing(OPENCL)))
def test_it_is_said_once_and_to_users_of_pocl(monkeypatch, capsys):
    notice = "PoCL cannot keep kernels in a test"
    monkeypatch.setattr(opencl, "kept_kernels", lambda: notice)
    for _ in range(2):
        OpenClRuntime(OPENCL)
    usual = f"tilewright: {notice}\n" if opencl.is_pocl(opencl.devices()[0]) else ""
    assert capsys.readouterr().err == usual


def kept(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def kernels(tmp_path):
    """Two programs, recorded."""
    for program in ("AB/one", "CD/two"):
        (tmp_path / program / "kernel").mkdir(parents=True)
        (tmp_path / program / "program.bc").write_bytes(b"code")
        (tmp_path / program / "kernel" / "kernel.so").write_bytes(b"machine code")
        (tmp_path / program / "last_accessed").write_text("today")
    record(tmp_path)
    return tmp_path


def test_what_is_as_it_was_stays(kernels):
    before = kept(kernels)
    (kernels / "AB" / "one" / "last_accessed").write_text("tomorrow")
    (kernels / "CD" / "new").mkdir()
    (kernels / "CD" / "new" / "program.bc").write_bytes(b"compiled since")
    drop_changed(kernels)
    assert kept(kernels) == sorted([*before, "CD/new/program.bc"])


@pytest.mark.parametrize("file", ["program.bc", "kernel/kernel.so"])
@pytest.mark.parametrize("content", [b"", b"machine", b"other codes!"])
def test_a_program_of_which_anything_changed_goes(file, content, kernels):
    path = kernels / "AB" / "one" / file
    path.write_bytes(content)
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1000))  # clocks of file systems are slow
    drop_changed(kernels)
    left = [name for name in kept(kernels) if name != RECORD]
    assert left == ["CD/two/kernel/kernel.so", "CD/two/last_accessed", "CD/two/program.bc"]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'{"AB/one/program.bc": 3}'])
def test_without_a_record_that_can_be_read_nothing_is_trusted(content, kernels):
    (kernels / RECORD).write_bytes(content)
    drop_changed(kernels)
    assert kept(kernels) == [RECORD]


def test_files_that_are_gone_are_no_fault(kernels):
    (kernels / "AB" / "one" / "program.bc").unlink()
    drop_changed(kernels)
    assert (kernels / "AB" / "one" / "kernel" / "kernel.so").exists()
    (kernels / RECORD).unlink()
    drop_changed(kernels)
    assert (kernels / "CD" / "two" / "program.bc").exists()


DOUBLE = """
import numpy
from tilewright.runtime.dialect import Source
from tilewright.runtime.opencl_runtime import OpenClRuntime
from tilewright.runtime.device import OPENCL
text = "TW_ENTRY TW_NAME(TW_GLOBAL float *out) { out[TW_BLOCK_X] = 2 * TW_BLOCK_X; }"
runtime = OpenClRuntime(OPENCL)
out = runtime.allocate((4,))
runtime.enqueue(runtime.compile(Source("doubles", text, (1, 1, 1), ())), (4, 1, 1), [out], ())
print(runtime.download(out).tolist())
"""


@pytest.mark.skipif(opencl.missing(OPENCL) is not None, reason=str(opencl.missing(OPENCL)))
def test_pocl_survives_damage(tmp_path):
    """A kernel cut short would end the process, each time."""
    environment = {key: value for key, value in os.environ.items() if key != "POCL_CACHE_DIR"}
    environment |= {
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }

    def run():
        done = subprocess.run(
            [sys.executable, "-c", DOUBLE], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "[0.0, 2.0, 4.0, 6.0]\n"

    run()
    damaged = [*tmp_path.rglob("*.so"), *tmp_path.rglob("*.bc")]
    assert len(damaged) >= 2
    for path in damaged:
        path.write_bytes(path.read_bytes()[:300])
    run()
