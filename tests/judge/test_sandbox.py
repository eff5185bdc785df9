"""What a GPU's worker is left with is enough for CUDA's compiler, and not for the user's files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.judge import sandbox
from tilewright.runtime import nvrtc

CHILD = """
import socket, sys
from pathlib import Path
from tilewright.judge.allowance import Allowance
from tilewright.judge.sandbox import enter
ours, theirs = socket.socketpair()
enter(Path(sys.argv[1]), None, False, Allowance(), theirs)
from tilewright.runtime import nvrtc
text = 'extern "C" __global__ void one(float *x) { x[0] = 1; }'
print(len(nvrtc.compile_cubin("one", text, "sm_90").cubin) > 0)
try:
    print(Path(sys.argv[2]).read_text())
except PermissionError:
    print("refused")
"""


@pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock and seccomp")
@pytest.mark.skipif(nvrtc.missing() is not None, reason="needs NVRTC")
def test_cuda_compiles_behind_the_walls(tmp_path: Path):
    secret, scratch = tmp_path / "secret", tmp_path / "scratch"
    secret.write_text("mine")
    scratch.mkdir()
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, str(scratch), str(secret)],
        env=sandbox.environment(scratch, None, native=False), capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.split() == ["True", "refused"], done.stderr
    kept = [path for path in (scratch / "cache").rglob("*") if path.is_file()]
    assert any(path.stat().st_size > 1000 for path in kept)  # and need not be compiled again


def test_packages_are_found_where_their_user_has_them(tmp_path, monkeypatch):
    """As `pip install --target` puts them, but not what else the user's Python would find."""
    elsewhere = tmp_path / "packages"
    (elsewhere / "msgspec").mkdir(parents=True)
    (elsewhere / "msgspec" / "__init__.py").touch()
    spec = SimpleNamespace(origin=str(elsewhere / "msgspec" / "__init__.py"))
    known = sandbox.find_spec
    monkeypatch.setattr(
        sandbox, "find_spec", lambda name: spec if name == "msgspec" else known(name)
    )
    monkeypatch.syspath_prepend(tmp_path)
    folders = sandbox.environment(tmp_path, None, native=True)["PYTHONPATH"].split(os.pathsep)
    assert str(elsewhere) in folders and str(tmp_path) not in folders
