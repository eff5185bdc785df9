"""What is welcome and what is not, and what is said of it."""

from __future__ import annotations

import os
import signal

import pytest

from tilewright.errors import TilewrightError
from tilewright.judge import protocol, reasons
from tilewright.judge.allowance import Allowance
from tilewright.judge.reasons import Doing, death, error_of, fault, last_words, unwelcome
from tilewright.judge.seccomp import SPAWN, THREAD, Asked
from tilewright.runtime import DeviceFault
from tilewright.runtime.complaints import KernelDoesNotCompile
from tilewright.runtime.dialect import DoesNotFit

NEW_USER = 0x10000000
MOST = Allowance(threads=4, processes=2)


def asking(flags: int, sealed: bool = False, name: str = "clone") -> str | None:
    return unwelcome(Asked(1, os.getpid(), name, (flags, 0, 0, 0, 0, 0)), 1, sealed, MOST)


def test_threads_and_the_linker_are_welcome_while_they_are_few(monkeypatch: pytest.MonkeyPatch):
    threads = processes = 1
    monkeypatch.setattr(reasons, "threads_of", lambda process: threads)
    monkeypatch.setattr(reasons, "processes_of", lambda group: processes)
    assert asking(THREAD) is None and asking(SPAWN) is None
    assert asking(THREAD, sealed=True) is None
    assert asking(SPAWN, sealed=True) == "another process"
    assert asking(signal.SIGCHLD) == "another process"
    assert asking(THREAD | NEW_USER) == "another process"
    assert asking(0, name="ptrace") == "ptrace"
    threads = processes = 5
    assert asking(THREAD) == "more than 4 threads"
    assert asking(SPAWN) == "more than 2 processes"


def test_a_death_has_a_reason():
    assert death(3) == "it ended with exit code 3"
    assert death(-signal.SIGKILL) == "it was killed by SIGKILL"
    assert death(-signal.SIGFPE) == "it was killed by SIGFPE, it divided by zero"


def test_what_a_driver_says_of_a_kernel_is_explained():
    said = "CUDARuntimeError: cudaErrorIllegalAddress: an illegal memory access was encountered"
    assert fault(said) == f"it touched memory that is not its own ({said})"
    assert fault("CUDADriverError: CUDA_ERROR_MISALIGNED_ADDRESS: misaligned address").startswith(
        "it touched memory at an address that is not aligned (CUDADriverError"
    )
    assert "\x1b" not in fault("something \x1b[31m else")


def test_several_launches_are_named_together():
    doing = Doing()
    assert str(doing) == "while starting"
    doing.running += ["a on conv1", "a on conv1", "b on conv2"]
    assert str(doing) == "while running a on conv1, b on conv2"
    doing.running += ["c", "d"]
    assert str(doing) == "while running a on conv1, b on conv2, 2 more"


def test_errors_come_as_what_they_were_and_cannot_steer_the_terminal():
    def error(kind: protocol.Class, **more: list[protocol.Complaint]) -> TilewrightError:
        return error_of(protocol.Failed(1, kind, "red \x1b[31m", **more), MOST)

    assert type(error("DoesNotFit")) is DoesNotFit
    assert type(error("DeviceFault")) is DeviceFault
    assert "\x1b" not in str(error("TilewrightError"))
    assert "4,294,967,296 bytes" in str(error("MemoryError"))
    told = error("KernelDoesNotCompile", complaints=[protocol.Complaint(3, None, "no \x1b[31m")])
    assert isinstance(told, KernelDoesNotCompile)
    assert told.messages[0].line == 3 and "\x1b" not in told.messages[0].text
    assert type(error("KernelDoesNotCompile")) is TilewrightError


def test_last_words_name_no_folders():
    said = b"dlopen(\"/home/me/.cache/judged/ab12/mine.so\") failed:\n  '/tmp/x y/a.so': 3/4 of it"
    assert last_words(said) == "dlopen(\"mine.so\") failed: 'x y/a.so': 3/4 of it"
    assert len(last_words(b"x" * 999)) == 300
