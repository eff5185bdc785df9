"""The whole text of a network's kernel, without tensor cores, run thread by thread on this machine:
one group of a block alone, whose weights come as one copy or 16 bytes at a time, and several."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from tests.fuse.cuda import on_fibers, on_host
from tilewright.fuse.cuda import program as program_module
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import Arrangement, stack_as
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Convolve
from tilewright.fuse.cuda.sums import into
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Convolution,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

pytestmark = pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))


class Case(NamedTuple):
    network: Network
    plan: Stack
    images: np.ndarray

    def run(
        self, seed: int, arch: int = 900, change: tuple[str, str] | None = None
    ) -> np.ndarray | str:
        """Results, or what went wrong."""
        made = program(self.plan, self.network.input, "uint8")
        parameters = self.plan.parameters(self.network.parameters)
        return on_fibers.run_stack(self.plan, made, parameters, self.images, seed=seed, blocks=2,
                                   arch=arch, change=change)  # fmt: skip

    def wrong(self, found: np.ndarray | str) -> str | None:
        if isinstance(found, str):
            return found
        network = self.network
        truth = reference.chain(network.stages, network.parameters, self.images,
                                ARITHMETICS["fp32"].precision)[-1]  # fmt: skip
        return compare(found.view(np.float32).reshape(truth.value.shape), truth)[1]


def case(outputs: int, warps: int, groups: int) -> Case:
    layers = (Convolution(8, 3, padding=1), ReLU(), MaxPool(2), Convolution(20, 3, padding=1),
              ReLU(), MaxPool(2), FullyConnected(outputs), Softmax())  # fmt: skip
    return arranged(layers, warps, groups)


def arranged(layers: tuple[Layer, ...], warps: int, groups: int, weight: float = 0.1) -> Case:
    generator = np.random.default_rng(len(layers))
    network = Network("net", Pixels((3, 8, 8)), layers)
    network = network.with_parameters(random_parameters(network, generator))
    chosen = Arrangement(0, warps, groups, weight)
    plan = stack_as(chosen, ARITHMETICS["fp32"], to_do(network.stages, HOPPER), HOPPER)
    assert plan
    return Case(network, plan, generator.integers(0, 256, (5, 3, 8, 8)).astype(np.uint8))


@pytest.fixture(scope="module")
def alone() -> Case:
    found = case(10, 8, 1)
    assert found.plan.late_words
    return found


@pytest.mark.parametrize("arch", [800, 900])
def test_one_group(alone, arch):
    for seed in range(6):
        assert alone.wrong(alone.run(seed, arch)) is None


@pytest.mark.parametrize("outputs", [1, 4, 33])  # softmax: one score, a power of two, too many
def test_several_groups(outputs):
    several = case(outputs, 2, 4)
    assert not several.plan.late_words
    for seed in range(3):
        assert several.wrong(several.run(seed)) is None


def test_units_of_the_same_positions_follow_each_other():
    """What another kernel reads is written in another order than by tiles, and is the same."""
    ends = arranged((Convolution(48, 3, padding=1), ReLU()), 4, 2, weight=2.0)
    (phase,) = ends.plan.phases
    phase = replace(phase, operation=replace(phase.operation, gives="words"))
    sink = into(plain(ends.plan.arithmetic, phase.operation.result), ends.plan.arithmetic, False)
    plan = replace(ends.plan, phases=(replace(phase, sink=sink),), gives="words")
    (step,) = (each for each in program(plan, ends.network.input, "uint8").item
               if isinstance(each, Convolve))  # fmt: skip
    assert step.beside and 1 < step.tiles < step.units
    for seed in range(2):
        found = ends._replace(plan=plan).run(seed)
        assert not isinstance(found, str), found
        planes = found.reshape(-1, 8, 8, 48).transpose(0, 3, 1, 2)
        assert ends.wrong(np.ascontiguousarray(planes)) is None


BY_DEPTH = {
    "rows left over": Convolution(6, (5, 3), padding=(2, 1), groups=6),
    "strides": Convolution(6, (3, 2), stride=(2, 1), padding=(1, 0), groups=6),
    "taps apart": Convolution(6, 3, padding=(3, 2), dilation=(3, 2), groups=6),
    "two filters a channel": Convolution(12, (2, 3), stride=(1, 2), groups=6),
}


@pytest.mark.parametrize("name", BY_DEPTH)
def test_each_channel_for_itself(name, monkeypatch):
    """With as many outputs above each other as are best, and with any number."""
    layers = Convolution(6, 1), ReLU(), BY_DEPTH[name], ReLU(), Convolution(4, 1), FullyConnected(3)
    made = arranged(layers, 4, 2)
    (phase,) = (each for each in made.plan.phases if each.operation.kind == "channels")
    assert made.wrong(made.run(0)) is None
    for tall in range(1, min(phase.operation.result[1], 5) + 1):
        monkeypatch.setattr(program_module, "outputs_of_a_thread", lambda *_, n=tall: n)
        for seed in range(2):
            assert made.wrong(made.run(seed)) is None


@pytest.mark.parametrize(
    "change",
    [
        ("wait_for(shared_address(barrier), 0);", ";"),
        ("expect(shared_address(barrier), BYTES);", "expect(shared_address(barrier), BYTES + 16);"),
        (
            "begin_barrier(shared_address(barrier), 1);",
            "begin_barrier(shared_address(barrier), 2);",
        ),
        ("copy(shared_address(to), from, BYTES,", "copy(shared_address(to), from, BYTES - 64,"),
    ],
)
def test_what_is_wrong_with_the_copy_shows(alone, change):
    found = (alone.run(seed, change=change) for seed in range(6))
    assert any(alone.wrong(each) for each in found)
