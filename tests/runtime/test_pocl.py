from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tilewright.errors import TilewrightError
from tilewright.files import cache_home
from tilewright.runtime import opencl, pocl

# The answer is kept for the life of the process; these ask again.
check = pocl.check_pocl.__wrapped__
here = not opencl.unusable() and any(
    "portable" in device.platform.name.lower() for device in opencl.devices()
)


@pytest.mark.skipif(not here, reason="no PoCL")
def test_a_missing_linker_is_a_message(monkeypatch):
    monkeypatch.setenv("PATH", "")
    message = check()
    assert message is not None
    assert "PoCL needs the linker `ld`" in message
    assert "apt-get install binutils libc6-dev" in message
    assert not (cache_home() / "pocl").exists()


@pytest.mark.skipif(not here or pocl.check_pocl() is not None, reason="no PoCL that works")
def test_success_is_remembered_until_something_changes(monkeypatch):
    assert check() is None
    (known,) = (cache_home() / "pocl").iterdir()
    assert "builds and runs kernels" in known.read_text()

    def refuse(*arguments, **options):
        raise AssertionError("tried again")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert check() is None
    monkeypatch.setattr("importlib.metadata.version", lambda package: "another")
    with pytest.raises(AssertionError, match="tried again"):
        check()


@pytest.mark.skipif(not here or pocl.check_pocl() is not None, reason="no PoCL that works")
def test_nothing_of_the_current_folder_runs_and_no_cache_is_no_problem(tmp_path):
    """As a user in a hostile folder, without a home that can be written to."""
    for name in ("numpy", "pyopencl", "sitecustomize", "secrets"):
        (tmp_path / f"{name}.py").write_text("open('caught', 'w').close()")
    (tmp_path / "file").write_text("")
    environment = {
        key: value for key, value in os.environ.items() if key not in ("POCL_CACHE_DIR", "HOME")
    } | {
        "XDG_CACHE_HOME": str(tmp_path / "file"),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tilewright", "devices", "--json", "-"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not (tmp_path / "caught").exists()
    devices = json.loads(done.stdout)["devices"]
    (device,) = (device for device in devices if "Portable" in device["details"])
    assert device["usable"]
    assert done.stderr == ""  # nothing was compiled that would be kept


def test_what_pocl_said_is_shown(monkeypatch):
    said = SimpleNamespace(returncode=-6, stderr="long story\n" * 100 + "cannot\n find crti.o\n")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: said)
    monkeypatch.setattr(pocl.shutil, "which", lambda name: "/usr/bin/ld")
    message = check()
    assert message.endswith("cannot find crti.o")
    assert "\n" not in message
    assert len(message) < 500
    said.stderr = ""
    assert check().endswith("exit code -6")


def test_a_cache_that_cannot_be_written_is_no_problem(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(pocl, "cache_home", lambda: tmp_path / "file")
    fine = SimpleNamespace(returncode=0, stderr="")
    monkeypatch.setattr(subprocess, "run", lambda *arguments, **options: fine)
    assert check() is None

    def refuse(path):
        raise TilewrightError(f"cannot write {path}: No space left on device")

    monkeypatch.setattr(pocl, "cache_home", lambda: tmp_path)
    monkeypatch.setattr(pocl, "atomic_write", refuse)
    assert check() is None
