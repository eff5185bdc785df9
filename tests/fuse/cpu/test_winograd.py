"""Winograd's algorithm: right within its own bound, chosen where it pays, and only if asked for."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tests.fuse.cpu.assembly import MULTIPLY_ADDS, STACK, blocks_of
from tests.fuse.cpu.machines import MACHINES, ON_THIS_CPU, TARGETS, runnable
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu import build, choice, explain
from tilewright.fuse.cpu.alternatives import alternatives
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_images
from tilewright.fuse.cpu.together import Rules
from tilewright.fuse.cpu.transforms import transformed
from tilewright.fuse.cpu.winograd import Edge, Strip, WinogradGroup, chunk, pays, strips
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Join,
    MaxPool,
    Pixels,
    ReLU,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.precision import (
    FLOAT32,
    FP32_WINOGRAD,
    FP32_WINOGRAD4,
    WINOGRAD_2,
    WINOGRAD_2_OF_5,
    WINOGRAD_4,
)
from tilewright.truth import reference
from tilewright.truth.trials import random_parameters

CLASSES = [FP32_WINOGRAD, FP32_WINOGRAD4]
# Tiles that hang over, padding of every kind, more blocks of filters than one, whole chunks and
# parts of them, and what is taken along.
CASES = {
    "plain": ((3, 8, 8), (Convolution(5, 3, padding=1),)),
    "odd sizes, max": ((2, 7, 21), (Convolution(9, 3, padding=1), ReLU(), MaxPool(2))),
    "padding, average": (
        (2, 9, 6), (Convolution(7, 3, padding=(0, 2, 1, 3), bias=False), Tanh(), AveragePool(2))),
    "windows that fit no tile": ((1, 9, 7), (Convolution(4, 3), MaxPool(3))),
    "added": ((4, 6, 7), (Convolution(4, 3, padding=1), Add(), ReLU())),
    "mostly padding": ((1, 2, 1), (Convolution(3, 3, padding=4),)),
    "one after the other": (
        (2, 7, 7), (Convolution(6, 3, padding=1), ReLU(), Convolution(3, 3), ReLU())),
}  # fmt: skip


def network_of(name):
    shape, layers = CASES[name]
    sources = tuple((i, 0) if isinstance(layer, Join) else (i,) for i, layer in enumerate(layers))
    network = Network(name, Pixels(shape), layers, sources=sources)
    return network.with_parameters(random_parameters(network, np.random.default_rng(1)))


def everywhere(network, precision):
    """Rules that leave no layer to the direct sum that need not be."""
    return replace(
        choice.rules_of(precision), faster=frozenset(stage.name for stage in network.stages)
    )


def images_of(network, count):
    shape = (count, *network.input.shape)
    return np.random.default_rng(2).normal(size=shape).astype(np.float32)


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("precision", CLASSES, ids=lambda each: each.name)
@pytest.mark.parametrize("name", CASES)
def test_outputs_are_within_the_bound_of_the_class(name, precision):
    within_the_bound(network_of(name), precision, build.host())


@pytest.mark.usefixtures("quick_elsewhere")
@pytest.mark.parametrize("level", ON_THIS_CPU)
def test_they_are_with_all_vectors(level):
    within_the_bound(network_of("padding, average"), FP32_WINOGRAD4, runnable()[level])


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(
    ("shape", "layers"),
    [((3, 8, 9), (Convolution(9, 5, padding=2), ReLU(), MaxPool(2))),
     ((2, 7, 6), (Convolution(4, 5, padding=(0, 3, 1, 2)), Tanh(), Convolution(5, 3)))],
)  # fmt: skip
def test_kernels_of_5x5_are_within_it(shape, layers):
    network = Network("five", Pixels(shape), layers)
    network = network.with_parameters(random_parameters(network, np.random.default_rng(1)))
    within_the_bound(network, FP32_WINOGRAD4, build.host())


def within_the_bound(network, precision, on):
    fused = FusedNetwork(network, on, math.inf, rules=everywhere(network, precision))
    groups = [g for g in fused.many.schedule.groups if isinstance(g, WinogradGroup)]
    assert len(groups) == sum(stage.kind == "conv" for stage in network.stages)
    images = images_of(network, 11)
    truth = reference.chain(network.stages, network.parameters, images, precision)[-1]
    assert (np.abs(fused(images) - truth.value) <= truth.bound).all()


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("precision", CLASSES, ids=lambda each: each.name)
def test_a_nan_or_infinity_spoils_the_tiles_that_see_it_and_nothing_else(precision):
    """Every output whose window has it; at most those of the tiles whose inputs have it."""
    side = precision.fast[0].outputs
    network = Network("conv", Pixels((2, 9, 10)), (Convolution(3, 3, padding=1),))
    network = network.with_parameters(random_parameters(network, np.random.default_rng(1)))
    fused = FusedNetwork(network, single=math.inf, rules=everywhere(network, precision))
    places = [(y, x) for y in range(9) for x in range(10)]
    for value in (np.nan, np.inf, -np.inf):
        images = images_of(network, len(places))
        clean = fused(images)
        for index, (y, x) in enumerate(places):
            images[index, 1, y, x] = value
        found = fused(images)
        for index, (y, x) in enumerate(places):
            spoilt = ~np.isfinite(found[index])
            window = np.zeros(spoilt.shape, bool)
            window[:, max(0, y - 1) : y + 2, max(0, x - 1) : x + 2] = True
            tiles = np.zeros(spoilt.shape, bool)
            rows, columns = (
                range(max(0, at - 1) // side * side, (at + 1) // side * side + 1, side)
                for at in (y, x)
            )
            for top in rows:
                for left in columns:
                    tiles[:, top : top + side, left : left + side] = True
            assert spoilt[window].all()
            assert not spoilt[~tiles].any()
            np.testing.assert_array_equal(found[index][~tiles], clean[index][~tiles])


class Numbers:
    """Arithmetic of a function, done at once and counted."""

    def __init__(self):
        self.count = 0

    def constant(self, value):
        return value

    def binary(self, name, a, b):
        self.count += 1
        return {"fadd": a + b, "fsub": a - b, "fmul": a * b}[name]

    def fma(self, a, b, c):
        self.count += 1
        return a * b + c


@pytest.mark.parametrize(
    ("matrix", "most"),
    [(WINOGRAD_4.inputs, 13), (WINOGRAD_4.inverse, 10), (WINOGRAD_2.inputs, 4),
     (WINOGRAD_2.inverse, 4), (WINOGRAD_2_OF_5.inverse, 8)],
)  # fmt: skip
def test_transforms_share_what_they_can(matrix, most):
    numbers, values = Numbers(), np.random.default_rng(0).normal(size=len(matrix[0]))
    np.testing.assert_allclose(transformed(numbers, matrix, values), np.array(matrix) @ values)
    assert numbers.count <= most


@pytest.mark.parametrize(
    "matrix",
    [*WINOGRAD_4.matrices, *WINOGRAD_2.matrices, WINOGRAD_2_OF_5.inverse],
)
def test_transforms_leave_zeros_out(matrix):
    size = len(matrix[0])
    for low in range(size + 1):
        for high in range(low, size + 1):
            values = np.zeros(size)
            values[low:high] = np.random.default_rng(high).normal(size=high - low)
            given = [value if low <= i < high else None for i, value in enumerate(values)]
            found = transformed(Numbers(), matrix, given)
            right = np.array(matrix) @ values
            np.testing.assert_allclose([0 if each is None else each for each in found], right)


def test_an_axis_is_cut_into_chunks_with_the_same_edges():
    """Of 30 outputs with a row of zeros before and behind: the first and the last differ."""
    inside = Edge(0, 6, 4)
    assert strips(30, 2, 1, 30, WINOGRAD_4) == (
        Strip(0, 1, (Edge(1, 6, 4), inside)),
        Strip(1, 3, (inside, inside)),
        Strip(3, 4, (inside, Edge(0, 3, 2))),
    )
    assert chunk((30, 30), (1, 1), 4) == (4, 16)
    assert chunk((8, 8), (2, 2), 4) == (8, 8)
    assert chunk((3, 3), (2, 2), 4) == (4, 4)


def conv(channels, size, layer):
    return Network("one", Pixels((channels, size, size)), (layer,)).stages[1]


def test_it_is_chosen_where_it_pays():
    assert pays(conv(64, 16, Convolution(64, 3, padding=1)), WINOGRAD_4)
    assert pays(conv(64, 16, Convolution(64, 3, padding=1)), WINOGRAD_2)
    assert not pays(conv(3, 32, Convolution(64, 3, padding=1)), WINOGRAD_4)
    # One output of a tile's sixteen.
    assert not pays(conv(64, 3, Convolution(64, 3)), WINOGRAD_4)
    assert pays(conv(32, 16, Convolution(32, 5, padding=2)), WINOGRAD_2_OF_5)
    rules = Rules(precision=FP32_WINOGRAD4)
    assert rules.transforms(conv(64, 16, Convolution(64, 5))) == WINOGRAD_2_OF_5
    for layer in (
        Convolution(64, 7), Convolution(64, 3, stride=2), Convolution(64, 3, dilation=2),
        Convolution(64, 3, groups=2), Convolution(64, (3, 1)),
    ):  # fmt: skip
        assert rules.transforms(conv(64, 16, layer)) is None
    assert Rules().transforms(conv(64, 16, Convolution(64, 3))) is None


WIDE = Network("wide", Pixels((3, 12, 12)), (
    Convolution(32, 3, padding=1), ReLU(), Convolution(32, 3, padding=1), ReLU(), MaxPool(2),
    Convolution(8, 5), ReLU()))  # fmt: skip


def test_a_choice_says_which_layers_and_only_its_class_has_any():
    on = MACHINES["avx512"]
    plain, fast = choice.choose(WIDE, on), choice.choose(WIDE, on, FP32_WINOGRAD4)
    assert plain.winograd == () and fast.winograd == ("conv2",)
    assert fast.many["conv2"] == (4, 12) and fast.few == plain.few
    kept = choice.Choice.of(msgspec.json.decode(msgspec.json.encode(fast)))
    many, _ = choice.build(WIDE, on, kept, FP32_WINOGRAD4)
    assert many == by_images(WIDE, on.target, Rules(precision=FP32_WINOGRAD4))
    every, _ = choice.build(WIDE, on, msgspec.structs.replace(fast, winograd="all"), FP32_WINOGRAD4)
    assert [isinstance(group, WinogradGroup) for group in every.groups] == [True, True, True]
    all_direct, _ = choice.build(WIDE, on, msgspec.structs.replace(plain, winograd="all"))
    assert all_direct == by_images(WIDE, on.target)


@pytest.mark.parametrize(
    ("changes", "precision", "words"),
    [
        ({}, FLOAT32, "options.winograd: conv2 cannot be computed so in fp32"),
        ({"winograd": ("conv3",)}, FP32_WINOGRAD, "conv3 cannot be computed so"),
        ({"winograd": ("fc7",)}, FP32_WINOGRAD4, "fc7 cannot be computed so"),
        ({"many": {"conv1": (2, 3), "conv2": (4, 6), "conv3": (1, 4)}}, FP32_WINOGRAD4,
         "conv2: a chunk of 4x6 positions is not possible with tiles of 4x4"),
        ({"many": {"conv1": (2, 3), "conv2": (64, 64), "conv3": (1, 4)}}, FP32_WINOGRAD4,
         "conv2: a chunk of 64x64"),
    ],
)  # fmt: skip
def test_a_choice_that_cannot_be_is_refused(changes, precision, words):
    on = MACHINES["avx512"]
    made = msgspec.structs.replace(choice.choose(WIDE, on, FP32_WINOGRAD4), **changes)
    with pytest.raises(TilewrightError, match=re.escape(words)):
        choice.build(WIDE, on, made, precision)


def test_a_tuner_may_try_other_chunks():
    on = MACHINES["avx512"]
    found = list(alternatives(WIDE, on, FP32_WINOGRAD4))
    chunks = {each.many["conv2"] for each in found}
    assert {(4, 4), (8, 8), (4, 12)} <= chunks
    assert all(size % 4 == 0 for each in chunks for size in each)


@pytest.mark.usefixtures("not_optimised")
def test_layers_that_are_alike_have_code_of_their_own_if_they_are_computed_otherwise():
    layers = (Convolution(4, 3, padding=1), ReLU()) * 2
    network = Network("twice", Pixels((4, 8, 8)), layers)
    network = network.with_parameters(random_parameters(network, np.random.default_rng(1)))
    on = build.host()
    images = images_of(network, on.target.lanes)
    right = FusedNetwork(network, on, math.inf)(images)
    only = replace(Rules(precision=FP32_WINOGRAD4), faster=frozenset({"conv2"}))
    for plan in (
        by_images(network, on.target, only),
        by_images(network, on.target, tiles={"conv1": (1, 2), "conv2": (2, 4)}),
    ):
        plans = (plan, choice.build(network, on, choice.choose(network, on))[1])
        found = FusedNetwork(network, on, math.inf, plans=plans)(images)
        np.testing.assert_allclose(found, right, atol=1e-4)


@pytest.mark.parametrize("level", ["avx512", "avx2", "neon"])
def test_registers_hold_the_products(level):
    """A multiply-add for each tile and filter of a block, loads, and nothing that is spilled."""
    network = Network("one", Pixels((32, 16, 16)), (Convolution(36, 3, padding=1),))
    on = MACHINES[level]
    plan = by_images(network, TARGETS[level], Rules(precision=FP32_WINOGRAD4))
    (group,) = plan.groups
    loops = [
        each
        for each in blocks_of("conv", build.assembly(network, on, plan))
        if len(MULTIPLY_ADDS.findall(each)) == group.accumulators
    ]
    assert loops
    assert not any(map(STACK.search, loops))


@pytest.mark.usefixtures("not_optimised")
def test_explain_names_the_algorithm_and_counts_its_products():
    network = Network("one", Pixels((32, 8, 8)), (Convolution(32, 3, padding=1), ReLU()))
    network = network.with_parameters(random_parameters(network, np.random.default_rng(1)))
    facts = explain.explain(network, 64, Rules(precision=FP32_WINOGRAD4)).groups[0]
    assert "Winograd 4x4: 4 tiles x" in facts.tile
    assert facts.executed_flops == 2 * 4 * 36 * 32 * 32
