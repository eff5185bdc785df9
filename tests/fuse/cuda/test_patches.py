"""Wide convolutions in patches: what they compute, and mistakes planted in their constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from tests.fuse.cuda.interpreter import interpret
from tests.fuse.cuda.memory import Mistake
from tests.fuse.cuda.patches_interpreter import run_patches
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.choice import Choice, Connected, Patched, Stacked
from tilewright.fuse.cuda.cut import Kernel, build, to_do
from tilewright.fuse.cuda.emit_patches import patches_text
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.patches import (
    Patches,
    all_patches,
    can_be_patches,
    patched,
    patches_as,
)
from tilewright.fuse.cuda.steps_patches import patches_program
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

IMAGES = 3
# Channels that leave a chunk half empty, filters that leave columns empty, both poolings, strides,
# zeros on some sides only, a sum that something is added to and that others read, and a picture
# whose windows leave a row over; a fully connected layer at the end, which reads panels.
LAYERS = (
    Convolution(32, 1), Tanh(),
    Convolution(40, 3, padding=1), ReLU(), MaxPool(2),
    Convolution(40, 3, padding=1), Add(), Tanh(),
    Convolution(72, (3, 2), stride=(1, 2), padding=(1, 0, 1, 3)), AveragePool(2),
    Convolution(32, 1, stride=2), ReLU(),
    Convolution(512, 5, stride=2, padding=2), Flatten(),
    FullyConnected(24), ReLU(), FullyConnected(5), Softmax(),
)  # fmt: skip
SOURCES = (*((number,) for number in range(6)), (5, 6), *((number,) for number in range(7, 18)))


def network() -> Network:
    made = Network("net", Pixels((3, 19, 26)), LAYERS, sources=SOURCES)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def kernels(precision: str, number: int) -> list[Kernel]:
    """A network's, with patches wherever they can be: of all plans one or another."""
    arithmetic, stages = ARITHMETICS[precision], network().stages
    chosen: list[Stacked | Patched | Connected] = []
    for operation in to_do(stages, HOPPER):
        plans = list(all_patches(arithmetic, operation, HOPPER))
        if plans:
            chosen.append(patched(plans[(number * 37 + 11 * operation.index) % len(plans)]))
        elif operation.forms[0] == "panels" or operation.gives == "panels":
            chosen.append(Connected(1, HOPPER.most_few))
        else:
            _, arrangement = arranged(arithmetic, [operation], HOPPER, {})
            chosen.append(Stacked(1, *arrangement))
    return build(stages, arithmetic, 90, Choice(HOPPER.name, tuple(chosen)))


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_a_network_of_patches(precision: str, number: int) -> None:
    made = kernels(precision, number)
    given, generator = network(), np.random.default_rng(number)
    images = generator.integers(0, 256, (IMAGES, *given.input.shape), np.uint8)
    arithmetic = ARITHMETICS[precision]
    truth = reference.chain(given.stages, given.parameters, images, arithmetic.precision)
    output = interpret(made, given, images)
    assert compare(output, truth[-1])[1] is None
    assert sum(isinstance(each, Patches) for each in made) == 5


# Constants that a kernel reads or writes by: a wrong one gives other results, or is caught.
OFFSETS = {
    "bias": 8, "weights": 32, "rows": 1, "pitch": 1, "planes_x": 1, "blocks_x": -1, "chunks": -1,
    "height": -1, "width": -1, "words": 4, "taps_x": 1, "stride_y": 1, "stride_x": 1, "top": 1,
    "left": 1, "result_y": -1, "result_x": -1, "out_words": 4, "filters": -8, "units": 1,
    "slots": -8,
}  # fmt: skip


@pytest.mark.parametrize("turned", [False, True])
def test_every_wrong_constant_is_seen(turned: bool) -> None:
    given, arithmetic = network(), ARITHMETICS["tf32"]
    operation = to_do(given.stages, HOPPER)[3]
    assert operation.names[0] == "conv4"  # it has strides, and zeros on some sides only
    plans = all_patches(arithmetic, operation, HOPPER)
    plan = next(each for each in plans if each.turned == turned and each.wide < 72 < 2 * each.wide)
    parameters, made = plan.parameters(given.parameters), patches_program(plan)
    channels, height, width = operation.source
    values = np.random.default_rng(0).normal(size=(IMAGES, height, width, channels))
    words = arithmetic.operands(values.astype(np.float32)[..., None])
    images = words.reshape(IMAGES, -1)
    right = run_patches(made, parameters, images)
    for name, more in OFFSETS.items():
        wrong = replace(made, **{name: getattr(made, name) + more})
        try:
            found = run_patches(wrong, parameters, images)
        except (Mistake, IndexError, ValueError):
            continue
        assert not np.array_equal(found, right), name


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_what_is_not_finite_reaches_what_sees_it_and_nothing_else(precision: str) -> None:
    layers = (
        Convolution(32, 1),
        Convolution(64, 3, padding=1),
        ReLU(),
        MaxPool(2),
        Convolution(8, 1),
    )
    bare = Network("net", Pixels((3, 20, 20)), layers)
    given = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    arithmetic = ARITHMETICS[precision]
    operation = to_do(given.stages, HOPPER)[1]
    for plan in list(all_patches(arithmetic, operation, HOPPER))[::5]:
        values = np.zeros((2, 20, 20, 32), np.float32)
        values[1, 6, 9, 3] = np.nan
        words = arithmetic.operands(values.reshape(2, 20, 20, -1, arithmetic.per_word))
        found = run_patches(
            patches_program(plan), plan.parameters(given.parameters), words.reshape(2, -1)
        )
        kind = np.float16 if precision == "fp16" else np.float32
        spoiled = np.isnan(found.view(kind)).reshape(2, 10, 10, 64).all(-1)
        seen = np.zeros((2, 10, 10), bool)
        seen[1, 2:4, 4:6] = True  # rows 5 to 7 and columns 8 to 10, pooled
        assert np.array_equal(spoiled, seen)
        assert not np.isnan(found.view(kind)).reshape(2, 10, 10, 64)[~seen].any()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_kernels_compile_and_keep_sums_in_registers(precision: str, turned: bool) -> None:
    given, arithmetic = network(), ARITHMETICS[precision]
    # One that is pooled, one that something is added to, one that gives panels.
    for index, number in ((1, 5), (2, 11), (5, 3)):
        operation = to_do(given.stages, HOPPER)[index]
        plans = [
            plan for plan in all_patches(arithmetic, operation, HOPPER) if plan.turned == turned
        ]
        plan = plans[number * len(plans) // 13]
        made = compile_cubin("patches", patches_text(plan, "patches"), "sm_90a")
        assert made.spilled_bytes < 100
        assert made.stack_bytes < 100


def test_kernels_that_cannot_be_are_refused() -> None:
    arithmetic, stages = ARITHMETICS["fp16"], network().stages
    operation = to_do(stages, HOPPER)[1]
    right = patched(next(all_patches(arithmetic, operation, HOPPER)))
    assert patches_as(right, arithmetic, operation, HOPPER)
    wrong = ({"images": 0}, {"groups": 3}, {"wide": 40}, {"wide": 288}, {"stages": 1},
             {"pictures": 9}, {"down": 40}, {"wide": 32, "turned": True})  # fmt: skip
    for each in wrong:
        assert patches_as(structs.replace(right, **each), arithmetic, operation, HOPPER) is None
    assert patches_as(right, ARITHMETICS["fp32"], operation, HOPPER) is None
    assert patches_as(right, ARITHMETICS["tf32x3"], operation, HOPPER) is None
    assert patches_as(right, arithmetic, operation, GENERATIONS[80]) is None


def test_what_is_read_and_written_value_by_value_has_no_such_kernel() -> None:
    """Pixels, few channels, channels or filters that do not fill pieces, results of a network."""
    layers = (
        Convolution(36, 1),
        Convolution(36, 1),
        Convolution(60, 1),
        Convolution(64, 1),
        Convolution(64, 1),
    )
    stages = Network("net", Pixels((32, 8, 8)), layers).stages
    can = {
        name: [can_be_patches(ARITHMETICS[name], each, HOPPER) for each in to_do(stages, HOPPER)]
        for name in ("fp16", "tf32")
    }
    assert can == {
        "fp16": [False, False, False, False, False],
        "tf32": [False, False, False, True, False],
    }
