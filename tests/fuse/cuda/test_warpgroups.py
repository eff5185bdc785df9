"""Sums that four warps compute together: the same results, and refused where they must not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import run_program
from tests.fuse.cuda.memory import Mistake
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import SHAPES, Arrangement, stack_as
from tilewright.fuse.cuda.emit_stack import program_text
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER, generation
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Arrived, Convolve, Program
from tilewright.fuse.cuda.to_do import to_do
from tilewright.fuse.cuda.warpgroups import with_warpgroups
from tilewright.model.layers import Convolution, MaxPool, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters

BARE = Network(
    "net",
    Pixels((3, 16, 16)),
    (Convolution(16, 3, padding=1), ReLU(), Convolution(24, 3, padding=1), ReLU(), MaxPool(2)),
)
NETWORK = BARE.with_parameters(random_parameters(BARE, np.random.default_rng(0)))
IMAGES = np.random.default_rng(1).integers(0, 256, (2, 3, 16, 16), np.uint8)
IMAGES_OF_SIX = np.random.default_rng(1).integers(0, 256, (2, 6, 23, 23), np.uint8)


def planned(precision: str, capability: int = 90, shape: tuple[int, int] = (4, 4)) -> Stack:
    plan = stack_of(precision, shape, capability)
    assert plan
    return plan


def stack_of(precision: str, shape: tuple[int, int], capability: int = 90) -> Stack | None:
    gpu = generation(capability)
    chosen = Arrangement(0, *shape, 0.5)
    return stack_as(chosen, ARITHMETICS[precision], to_do(NETWORK.stages, gpu), gpu)


def wide(plan: Stack) -> list[bool]:
    return [phase.warpgroup > 0 for phase in plan.phases]


def run(plan: Stack, made: Program) -> np.ndarray:
    return run_program(made, plan, NETWORK, IMAGES)


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_as_warp_by_warp(precision: str) -> None:
    plan = planned(precision)
    assert wide(plan) == [False, True]
    alone = replace(plan, phases=tuple(replace(each, warpgroup=0) for each in plan.phases))
    made, other = (program(each, NETWORK.input, "uint8") for each in (plan, alone))
    np.testing.assert_array_equal(run(plan, made), run(alone, other))
    assert "wgmma" in program_text(made, "kernel")
    assert "wgmma" not in program_text(other, "kernel")


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_units_of_the_same_positions_follow_each_other(precision: str) -> None:
    """Four warps that have the same filters stay together."""
    bare = Network("net", Pixels((16, 16, 32)), (Convolution(64, 3, padding=1),))
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    images = np.random.default_rng(1).integers(0, 256, (2, 16, 16, 32), np.uint8)
    (only,) = to_do(network.stages, HOPPER)
    todo = [replace(only, gives="words", only_sums=True)]
    plan = stack_as(Arrangement(0, 4, 4, 0.5, True), ARITHMETICS[precision], todo, HOPPER)
    assert plan
    (phase,) = plan.phases
    assert phase.warpgroup and phase.shares
    phase = replace(phase, shares=replace(phase.shares, columns=phase.shares.columns // 2))
    plan = replace(plan, phases=(phase,))
    made = program(plan, network.input, "uint8")
    index, step = next((at, x) for at, x in enumerate(made.item) if isinstance(x, Convolve))
    assert step.beside and 4 < step.tiles < step.units
    by_tiles = (*made.item[:index], replace(step, beside=False), *made.item[index + 1 :])
    found = [run_program(each, plan, network, images)
             for each in (made, replace(made, item=by_tiles))]  # fmt: skip
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_units_made_for_them(precision: str) -> None:
    """Rows of taps that end in half a step, and tiles that would not come out even."""
    bare = Network("net", Pixels((6, 23, 23)), (Convolution(12, 3), Convolution(24, 7)))
    net = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    arithmetic, todo = ARITHMETICS[precision], to_do(net.stages, HOPPER)
    plans = [stack_as(Arrangement(0, 4, 4, 0.5, each), arithmetic, todo, HOPPER)
             for each in (False, True)]  # fmt: skip
    found = []
    for plan, together in zip(plans, ([False, False], [False, True]), strict=True):
        assert plan and wide(plan) == together
        made = program(plan, net.input, "uint8")
        found.append(run_program(made, plan, net, IMAGES_OF_SIX))
        step = made.item[-2]
        assert isinstance(step, Convolve) and (step.half > 0) != together[1]
    np.testing.assert_array_equal(*found)
    assert plan.phases[1].shares and None in [
        top for tile in plan.phases[1].shares.tiles for top in tile
    ]


def test_no_such_plan_where_there_are_no_such_units() -> None:
    todo = to_do(NETWORK.stages, HOPPER)
    for precision, shape in (("fp32", (4, 4)), ("fp16", (2, 8)), ("fp16", (4, 2))):
        assert (
            stack_as(Arrangement(0, *shape, 0.5, True), ARITHMETICS[precision], todo, HOPPER)
            is None
        )
    few = Network("net", Pixels((3, 16, 16)), (Convolution(8, 3),))
    todo = to_do(few.stages, HOPPER)
    assert stack_as(Arrangement(0, 4, 4, 0.5, True), ARITHMETICS["fp16"], todo, HOPPER) is None


def test_what_four_warps_cannot_do_together() -> None:
    plan = planned("fp16")
    made = program(plan, NETWORK.input, "uint8")
    (at,) = (i for i, step in enumerate(made.item) if isinstance(step, Convolve) and step.warpgroup)
    step = made.item[at]
    assert isinstance(step, Convolve)
    for wrong in ({"units": step.units - 1}, {"warps": 2}, {"weights": step.weights + 2}):
        item = (*made.item[:at], replace(step, **wrong), *made.item[at + 1 :])  # type: ignore[arg-type]
        with pytest.raises(Mistake, match="four warps do not have the same"):
            run(plan, replace(made, item=item))
    once = tuple(Arrived() if isinstance(each, Arrived) else each for each in made.once)
    with pytest.raises(Mistake, match="do not see the weights"):
        run(plan, replace(made, once=once))


def test_only_where_it_gains() -> None:
    assert wide(planned("fp32")) == [False, False]
    assert wide(planned("fp16", 80)) == [False, False]
    narrow = [(warps, groups) for warps, groups in SHAPES if warps % 4 or warps * groups < 12]
    fit = {shape: plan for shape in narrow if (plan := stack_of("fp16", shape))}
    assert len(fit) > 4
    for shape, plan in fit.items():
        assert wide(plan) == [False, False], shape
    few = [replace(each, shared=False, warpgroup=0) for each in planned("fp16").phases]
    assert not any(wide(with_warpgroups(replace(planned("fp16"), phases=tuple(few)), HOPPER)))


def test_one_generation_has_the_instruction() -> None:
    assert [number for number, each in GENERATIONS.items() if each.warpgroups] == [90]
    assert not generation(103).warpgroups
