"""A class's judging, on PoCL: verdicts, times, answers at every size, marks."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.own_kernels import DIRECT, kernel_file
from tilewright.classroom import judging
from tilewright.classroom.course import Task
from tilewright.classroom.judging import KernelJudge
from tilewright.errors import TilewrightError
from tilewright.judge import arena, sandbox
from tilewright.judge.connection import Connection
from tilewright.model.layers import Convolution
from tilewright.profiling.result import Ceilings
from tilewright.runtime.device import OPENCL
from tilewright.runtime.opencl import missing

pytestmark = [
    pytest.mark.skipif(missing(OPENCL) is not None, reason="needs PoCL"),
    pytest.mark.skipif(bool(sandbox.protection().missing), reason="needs Landlock and seccomp"),
    pytest.mark.usefixtures("quick_workers", "not_optimised"),
]
SMALL = """{"name": "small", "input": {"shape": [1, 12, 12]}, "layers": [
    {"type": "convolution", "filters": 3, "kernel": 5}, {"type": "fully_connected", "outputs": 10},
    {"type": "softmax"}]}"""
FAST = Ceilings("fast", flops=1e15, bytes=1e15, processors=1, date="2026-11-15")


@pytest.fixture
def task(tmp_path, monkeypatch) -> Task:
    monkeypatch.setattr(arena, "ceilings", lambda *given, **named: (FAST, None))
    shape = ((3, 11, 13), Convolution(5, 3, padding=1))
    monkeypatch.setattr("tilewright.truth.quick.SHAPES", (shape,))
    path = tmp_path / "small.json"
    path.write_text(SMALL)
    judging._referee.cache_clear()
    return Task(
        name="t", title="T", network=str(path), images=120, batch=10, repeats=2, marks=("shared",)
    )


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[weakref.ref[Connection]]]:
    """To all workers that are started; those that are let go are gone at once, or never."""
    started: list[weakref.ref[Connection]] = []
    start = Connection.__init__

    def noted(self: Connection, *given: object) -> None:
        started.append(weakref.ref(self))
        start(self, *given)

    monkeypatch.setattr(Connection, "__init__", noted)
    gc.disable()
    yield started
    gc.enable()


def test_verdict_times_and_answers_and_no_worker_is_left(task, connections):
    said: list[str] = []
    judge = KernelJudge()
    where = judge.prepare(task)
    assert where.machine and where.device and "driver" in where.driver
    header = {"own.h": b"#define SUM bias[filter]\n"}
    text = kernel_file(DIRECT, ("sum = bias[filter]", "sum = SUM"))
    text = text.replace("*/\n", '*/\n#include "own.h"\n', 1)
    found = judge(task, {"mine.cl": text.encode(), **header}, said.append)
    assert found.outcome == "right", found.reason
    assert len(found.operations["conv"]) == len(found.baseline["conv"]) == 2
    assert len(found.cold["conv"]) == 2 and set(found.correct) == {"100", "120"}
    profile = found.profile["conv"]
    assert profile.flops > 0 and 0 < profile.share_of_peak < 1 and 0 < profile.share_of_memory < 1
    assert 0 <= found.worst_share_of_bound <= 1
    assert said[0] == "compiling" and said[1] == "proving: 1 trials"
    assert any(words.startswith("timing mine: ") for words in said)
    assert len(connections) > 2 and not any(known() for known in connections)


def test_what_is_wrong_is_told_and_what_is_for_another_device_is_refused(task):
    judge = KernelJudge()
    wrong = judge(task, {"a.cl": kernel_file("not C").encode()}, lambda words: None)
    assert wrong.outcome == "does not compile" and "a.cl:" in wrong.reason
    assert "/tmp" not in wrong.reason
    other = judge(task, {"a.cu": kernel_file(DIRECT, more='language = "cuda"').encode()}, print)
    assert other.outcome == "refused"
    assert other.reason == "it runs on cuda, and all are judged on opencl"


def test_a_kernel_called_as_a_rung_is_refused(task):
    """It would stand in the table as the one it is compared with."""
    text = kernel_file(DIRECT, name="direct")
    found = KernelJudge()(task, {"a.cl": text.encode()}, lambda words: None)
    assert found.outcome == "refused" and "that of a rung" in found.reason


def test_marks_are_rungs_and_those_that_cannot_run_here_say_why(task, monkeypatch):
    def absent(name: str) -> None:
        raise TilewrightError(f"{name} is not installed")

    found = judging._entry
    monkeypatch.setattr(
        judging, "_entry", lambda task, name: absent(name) if name == "torch" else found(task, name)
    )
    marks = KernelJudge().marks(replace(task, marks=("direct", "torch")), lambda words: None)
    assert marks["direct"].total is not None
    assert marks["torch"].outcome == "refused" and marks["torch"].reason == "torch is not installed"


def test_a_machine_without_what_a_task_needs_says_so(task):
    with pytest.raises(TilewrightError, match="does not exist"):
        KernelJudge().prepare(replace(task, data="./none.npz"))
