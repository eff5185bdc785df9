"""What is said of the CPU rungs' loops is read from their source, their sizes and machine code."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from tilewright.model.layers import Convolution, Flatten, FullyConnected, MaxPool, Pixels, Softmax
from tilewright.model.network import Network
from tilewright.rungs.cpu import explain, loops
from tilewright.truth.trials import random_parameters

pytestmark = pytest.mark.xdist_group("explained loops")  # one worker compiles them
LAYERS = (
    Convolution(5, (3, 2), padding=1), MaxPool(2), Convolution(10, 1, groups=5), Flatten(),
    FullyConnected(4), Softmax(),
)  # fmt: skip


@pytest.fixture(scope="module")
def network():
    made = Network("small", Pixels((2, 9, 8)), LAYERS)
    return made.with_parameters(random_parameters(made, np.random.default_rng(1)))


@pytest.fixture(scope="module")
def facts(network):
    return {each.stage.name: each for each in explain.explain_loops(network, cores=4)}


def test_loops_multiply_to_the_multiply_adds(network, facts):
    conv = facts["conv1"]
    product = np.prod([fact.extent for fact in conv.loops])
    assert 2 * product == pytest.approx(conv.stage.flops, rel=0.05)
    assert np.prod([fact.extent for fact in facts["fc"].loops]) * 2 <= facts["fc"].stage.flops


def test_lines_are_those_of_the_source(facts):
    lines = inspect.getsource(loops).splitlines()
    for each in facts.values():
        for fact in each.loops:
            assert lines[fact.line - 1].strip() == f"{fact.code}:"


def test_the_outermost_is_shared_out_and_sums_are_reductions(facts):
    places = [fact.place for fact in facts["conv1"].loops]
    assert places[0] == "parallel: over 4 cores"
    assert places[1:3] == ["sequential"] * 2
    assert all(place.startswith("reduction") for place in places[3:])
    assert facts["conv1"].notes[0].startswith("machine code: ")


def test_loops_that_carry_nothing_to_the_next_turn_are_no_reductions(facts):
    def found(name):
        return [(fact.extent, fact.place.split(",")[0]) for fact in facts[name].loops[1:]]

    assert found("input") == [(2, "sequential"), (72, "sequential")]
    assert found("pool")[2:] == [(2, "reduction"), (2, "reduction")]
    assert found("conv2")[2] == (1, "reduction")  # a group has one channel
    assert [place for _, place in found("softmax")] == ["reduction", "reduction", "sequential"]


def test_the_flattening_has_no_loop(facts):
    assert "flatten" not in facts


def test_a_product_has_the_sizes_of_its_matrices(network):
    conv, _, fc = explain.explain_product(network)
    product = next(fact for fact in conv.loops if " times " in fact.code)
    assert product.code == "5 x 12 times 12 x 81"
    assert product.extent == 5 * 12 * 81
    assert conv.loops[-1].code == "add the bias"
    assert "times the input" in conv.notes[0]
    assert fc.loops[0].code.endswith("160 x 4")
    assert fc.loops[0].extent == 160 * 4
