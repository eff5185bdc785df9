"""What a contest's turns are judged by, and what is compiled before they begin."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tilewright
from tilewright import contest
from tilewright.contest import RECORDED, Contest, begin_convolutions
from tilewright.measure.samples import SETTLE_SECONDS, Rounds, interleave
from tilewright.rungs import find
from tilewright.runtime import cuda
from tilewright.runtime.device import CPU, CUDA
from tilewright.runtime.dialect import Limits
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.trace import Event, Trace


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


class Noted:
    """A runtime that only notes what it should compile."""

    limits, capability = Limits(1024, 49152, 65536, 2**34, 100), 90

    def __init__(self):
        self.begun = []

    def compile_ahead(self, texts):
        self.begun += texts
        return ()


@pytest.mark.parametrize(("name", "count"), [("network", 3), ("tuned", 0)])
def test_convolutions_that_are_timed_alone_are_compiled_before(monkeypatch, name, count):
    """As they will be asked for: of values, not of bytes, so that nothing is compiled twice."""
    monkeypatch.setattr(cuda, "device_limits", lambda device: Noted.limits)
    monkeypatch.setattr(cuda, "gpu", lambda index: REFERENCE)
    noted, network = Noted(), tilewright.load("cifar10")
    rung = replace(find(name), open_runtime=lambda device, memory: noted)
    begin_convolutions(rung, network, CUDA, 100, None)
    assert len(noted.begun) == len(set(noted.begun)) == count


def test_what_a_program_shows_of_its_layers_is_looked_at_with_a_whole_batch(monkeypatch):
    """Few images may have a kernel for each layer where many have one for all."""
    network = tilewright.load("cifar10")
    given = []

    class Split:
        """A program that shows convolutions by themselves when it gets one image."""

        def __init__(self, network, *_, **more):
            self.network, self.plan = network, SimpleNamespace(device=CPU, memory="host")
            self.runtime = SimpleNamespace(recording_disturbs=False)

        def __call__(self, images, trace):
            given.append(len(images))
            names = [stage.name for stage in self.network.stages]
            parts = [(each,) for each in names] if len(images) == 1 else [tuple(names)]
            for layers in parts:
                trace.add(Event("kernel", "k", 0.0, 1.0, layers))

    monkeypatch.setattr(contest, "program_of", Split)
    monkeypatch.setattr(contest, "pins", lambda program: False)
    monkeypatch.setattr(Contest, "_alone", lambda self, program, stage: stage.name)
    made = Contest(np.zeros((7, 3, 32, 32), np.uint8), 5)
    made.enter("network", find("fused"), network, CPU, None)
    assert given == [5]
    alone = [part for _, part in made.subjects if part]
    assert alone == [stage.name for stage in network.stages if stage.kind == "conv"]
