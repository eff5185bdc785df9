"""A class's workers at the other end of Ray, as far as that needs no cluster."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.classroom.judges import Obedient
from tests.classroom.made import HERE, TASK, right
from tests.cluster.near import Handle, Near
from tilewright.classroom.seats import Lost
from tilewright.cluster import session
from tilewright.cluster.pool import Chair, RaySeat, everywhere
from tilewright.cluster.saying import Done, Failed, Told
from tilewright.errors import TilewrightError
from tilewright.runtime.device import Device

CUDA = Device.parse("cuda")


def test_a_chair_judges_as_a_seat_here_does(tmp_path):
    log = tmp_path / "log"
    log.touch()
    chair = Chair(TASK.device, Obedient(log))
    try:
        assert chair.open([TASK]) == HERE
        assert list(chair.judge(TASK, {"a.cl": b"right 2"})) == [
            Told("compiling"), Done({"": right(2)}),
        ]  # fmt: skip
        *_, failed = chair.judge(TASK, {"a.cl": b"die"})
        assert not failed.expected and "SIGKILL" in failed.words
    finally:
        chair.seat.close()


def test_a_machine_that_cannot_judge_says_so(tmp_path):
    chair = Chair(TASK.device, Obedient(tmp_path / "log", broken="no compiler here"))
    try:
        assert chair.open([TASK]) == Failed("no compiler here", True)
    finally:
        chair.seat.close()


def test_a_worker_for_every_gpu_or_every_machine():
    machines = [(8, 2), (8, 0), (64, 8)]
    on_gpu = replace(TASK, name="second", device=CUDA)
    found = everywhere([TASK, on_gpu], machines)
    assert [str(each.device) for each in found].count("opencl") == 3
    assert [str(each.device) for each in found].count("cuda") == 10
    with pytest.raises(TilewrightError, match="the cluster has no GPU"):
        everywhere([on_gpu], [(8, 0)])
    with pytest.raises(TilewrightError, match="no processor, and tasks are judged on opencl"):
        everywhere([TASK], [])
    assert len(everywhere([on_gpu], [(2, 8)])) == 2
    with pytest.raises(TilewrightError, match="judged on cuda:1, and no worker has it"):
        everywhere([replace(TASK, device=Device.parse("cuda:1"))], machines)


class Silent(Near):
    """After a first word, a worker stands still."""

    def __init__(self):
        super().__init__()
        self.waited, self.killed = [], []

    def wait(self, answers, timeout):
        self.waited.append(timeout)
        return ([], answers) if len(self.waited) > 1 else (answers, [])

    def kill(self, chair):
        self.killed.append(chair)


def test_a_worker_that_stands_still_is_given_up(monkeypatch):
    """Ray knows only of those that died: whoever works says so, and is waited for so long."""
    silent = Silent()
    monkeypatch.setattr(session, "library", lambda: silent)
    seat = RaySeat(TASK.device, None, silent=20)
    seat.chair = Handle(SimpleNamespace(judge=lambda task, files: iter([Told("compiling")])))
    told = []
    with pytest.raises(Lost, match="its worker was silent for 30 s"):
        seat.judge(TASK, {}, told.append)
    assert told == ["compiling"] and silent.waited == [30, 30]
    seat.close()
    assert silent.killed == [seat.chair]
