"""What a contest's turns are judged by."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from tilewright import contest
from tilewright.contest import RECORDED, Contest
from tilewright.measure.samples import SETTLE_SECONDS, Rounds, interleave
from tilewright.runtime.device import CPU, Device
from tilewright.trace import Event, Trace

CUDA = Device("cuda", 0)


class Machine:
    """A clock that moves when something runs or waits; the host takes longer each time."""

    def __init__(self, monkeypatch):
        self.now, self.waited = 0.0, set()

        def timed(*given, **more):
            return interleave(*given, **more, clock=lambda: self.now, sleep=self.waited.add)

        monkeypatch.setattr(contest, "interleave", timed)

    def turn(self, *kernels):
        def run():
            self.now = 1.1 * self.now + 0.001
            return Trace(events=[Event("kernel", "k", start, end) for start, end in kernels])

        return run


def entered(**subjects):
    """A contest of programs on devices, with their turns."""
    made = Contest(np.zeros((1, 1, 1, 1), np.uint8), 1)
    for name, (device, turns) in subjects.items():
        made.programs[name] = SimpleNamespace(plan=SimpleNamespace(device=device))
        made.subjects |= {(name, part): turn for part, turn in turns.items()}
    return made


@pytest.mark.parametrize(
    ("device", "part", "kernels", "rounds", "pause"),
    [
        (CUDA, RECORDED, ((0.0, 0.5), (0.25, 1.0)), 9, 0.0),  # the GPU's own time never moves
        (CUDA, "", ((0.0, 1.0),), 9, 0.0),
        (CUDA, "", (), 30, 0.0),  # nothing was recorded: the host's time is all there is
        (CPU, "", ((0.0, 1.0),), 30, SETTLE_SECONDS),  # a kernel of the CPU is a part of the turn
    ],
)
def test_rounds_go_on_until_what_ranks_go_by_is_certain(
    monkeypatch, device, part, kernels, rounds, pause
):
    machine = Machine(monkeypatch)
    turns = {"": machine.turn(), part: machine.turn(*kernels), "conv1": machine.turn()}
    made = entered(rung=(device, turns))
    told = []
    made.run(
        Rounds(least=9, most=30, seconds=math.inf), lambda *now: None,
        lambda name, seconds: told.append((name, seconds)), 1, lambda: None,
    )  # fmt: skip
    assert len(made.samples["rung", ""].seconds) == rounds
    assert told == [("rung", pytest.approx(1.0))] * (rounds if kernels else 0)
    assert machine.waited == {pause}
