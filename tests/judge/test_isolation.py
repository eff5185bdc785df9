"""Kernels that attack their user, through PoCL: none succeeds, and the judge goes on."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.judge import WorkerStopped, protocol, sandbox
from tilewright.judge.allowance import Allowance
from tilewright.judge.office import Office
from tilewright.judge.remote import RemoteRuntime
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import DoesNotFit, Source
from tilewright.runtime.opencl import missing

pytestmark = [
    pytest.mark.skipif(missing(OPENCL) is not None, reason="needs PoCL"),
    pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock and seccomp"),
    pytest.mark.skipif(
        platform.machine() not in ("x86_64", "aarch64"),
        reason="knows system calls of x86-64 and aarch64 alone",
    ),
    pytest.mark.xdist_group("attacks"),  # compiled once
]
TEXT = (Path(__file__).parent / "attacks.cl").read_text()
SOURCE = Source("attack", TEXT, (1, 1, 1), ())
ALLOWANCE = Allowance(seconds=60.0, file_bytes=16 * 2**20, folder_bytes=64 * 2**20)
NOT_ALLOWED, NO_MEMORY = -13, -12


class Attacker:
    """A worker with the attacks compiled; a new one after it was stopped."""

    def __init__(self, kept: Path) -> None:
        self.kept = kept
        self.office: Office | None = None

    def runtime(self) -> RemoteRuntime:
        if self.office is None or self.office.connection.reason:
            self.office = Office(OPENCL, ALLOWANCE, self.kept, trust=False)
            self.kernel = RemoteRuntime(OPENCL, self.office).compile(SOURCE)
        return RemoteRuntime(OPENCL, self.office)

    def __call__(self, kind: int, given: bytes = b"", size: int = 0) -> int:
        runtime = self.runtime()
        data = runtime.upload(np.frombuffer(given.ljust(4096, b"\0"), np.uint8))
        out = runtime.upload(np.full(512, -1, np.int64))
        runtime.enqueue(self.kernel, (1, 1, 1), [data, out, kind, size], ("conv1",))
        return int(runtime.download(out)[0])

    def stopped(self, kind: int, given: bytes = b"", size: int = 0) -> str:
        with pytest.raises(WorkerStopped) as error:
            self(kind, given, size)
        return str(error.value)


@pytest.fixture(scope="module")
def attack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacker]:
    attacker = Attacker(tmp_path_factory.mktemp("compiled"))
    yield attacker
    # Whatever was tried, the next worker works, and nothing is left of the others.
    assert attacker(0) == 42


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("nobody_else_knows")
    return path


def test_files_of_the_user_are_out_of_reach(attack: Attacker, secret: Path):
    assert attack(1, bytes(secret)) == NOT_ALLOWED
    assert attack(1, bytes(Path(__file__))) == NOT_ALLOWED
    assert attack(1, bytes(Path.home())) == NOT_ALLOWED
    assert attack(2, bytes(secret)) == NOT_ALLOWED
    assert attack(2, bytes(secret.parent / "new")) == NOT_ALLOWED
    assert attack(2, str(Path(sys.prefix) / "new").encode()) == NOT_ALLOWED
    assert secret.read_text() == "nobody_else_knows" and list(secret.parent.iterdir()) == [secret]


def test_the_judge_itself_is_out_of_reach(attack: Attacker):
    for file in ("mem", "environ", "maps", "cmdline", "fd/0"):
        assert attack(1, f"/proc/{os.getpid()}/{file}".encode()) == NOT_ALLOWED


def test_no_program_is_run(attack: Attacker):
    assert attack(3, os.path.realpath("/bin/sh").encode()) == NOT_ALLOWED
    assert attack(3, os.path.realpath(sys.executable).encode()) == NOT_ALLOWED


def test_memory_has_a_limit(attack: Attacker):
    assert attack(4) == NO_MEMORY


def test_a_flood_of_output_is_thrown_away(attack: Attacker):
    assert attack(5, b"proven\n" * 500, size=5_000) == 42  # 20 MB
    assert attack.office is not None and len(attack.office.connection.said) <= 4096


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (6, "it asked the system for socket"),
        (7, "it asked the system for another process"),
        (8, "it asked the system for more than 8 processes"),
        (9, "it asked the system for kill"),
        (10, "it was killed by SIGABRT"),
        (11, "it was killed by SIGSEGV, it touched memory that is not its own"),
        (16, "it was killed by SIGSEGV"),
    ],
)
def test_whoever_wants_out_is_stopped(attack: Attacker, kind: int, reason: str):
    said = attack.stopped(kind)
    assert said.startswith("the worker was stopped while running attack on conv1: ")
    assert reason in said


def test_once_all_is_compiled_there_are_no_other_processes(attack: Attacker):
    assert attack(0) == 42
    attack.runtime().office.connection.seal()
    assert "it asked the system for another process" in attack.stopped(8)


def test_an_endless_loop_is_ended(attack: Attacker):
    attack.runtime().office.allowance = replace(ALLOWANCE, seconds=0.5)
    assert attack.stopped(12).endswith("while running attack on conv1: it ran longer than 0.5 s")


@pytest.mark.parametrize(
    "message",
    [
        protocol.frame(protocol.Done(7)),
        (2**31).to_bytes(4, "little") + b"giant",
        b"\x05\0\0\0trash",
    ],
    ids=["done", "giant", "trash"],
)
def test_forged_answers_are_found_out(attack: Attacker, message: bytes):
    said = attack.stopped(13, message, len(message))
    assert "it sent an answer that nobody asked for" in said or "it sent what is no answer" in said


def test_files_have_a_limit(attack: Attacker):
    assert "killed by SIGXFSZ, it wrote a file larger than it may" in attack.stopped(14, b"giant")
    assert "wrote more than 67,108,864 bytes of files" in attack.stopped(15, b"a", 2**12 * 1024)


def test_nothing_is_left_of_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    office = Office(OPENCL, ALLOWANCE, None, trust=False)
    process, (folder,) = office.connection.process.pid, tmp_path.iterdir()
    deep = folder
    for _ in range(30):
        deep = deep / "deep"
        deep.mkdir()
    with pytest.raises(WorkerStopped, match="before any launch: enough"):
        office.connection.stop("enough")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process, 0)


def test_a_compiler_cannot_be_made_to_show_files(attack: Attacker, secret: Path):
    text = f'#include "{secret}"\n__kernel void take() {{ }}'
    with pytest.raises(TilewrightError, match="secret") as error:
        attack.runtime().compile(Source("take", text, (1, 1, 1), ()))
    assert secret.read_text() not in str(error.value)


def test_errors_are_those_of_the_local_runtime(attack: Attacker):
    runtime = attack.runtime()
    with pytest.raises(TilewrightError, match="the OpenCL compiler, of wrong") as error:
        runtime.compile(Source("wrong", "__kernel void wrong() { nonsense }", (1, 1, 1), ()))
    assert not isinstance(error.value, WorkerStopped) and "nonsense" in str(error.value)
    with pytest.raises(DoesNotFit):
        runtime.compile(Source("large", "", (2048, 1, 1), ()))
    assert attack(0) == 42
