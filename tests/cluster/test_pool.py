"""A class's workers at the other end of Ray, as far as that needs no cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.classroom.judges import Obedient
from tests.classroom.made import HERE, TASK, right
from tilewright.cluster.pool import Chair, everywhere
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
    with pytest.raises(TilewrightError, match="judged on cuda:1, and no worker has it"):
        everywhere([replace(TASK, device=Device.parse("cuda:1"))], machines)
