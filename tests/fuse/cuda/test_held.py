"""The last fully connected layer and its softmax for several images: each image for itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import run_program
from tests.fuse.cuda.test_branches import residual
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.held import COUNTS, holding
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.model.layers import Convolution, FullyConnected, Pixels, ReLU, Softmax
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters

CHAIN = Network(
    "chain",
    Pixels((3, 6, 5)),
    (Convolution(5, 3), ReLU(), FullyConnected(19), FullyConnected(11), Softmax()),
)
BLOCK = residual(6, 5, 4)
BRANCHED = Network(
    "branched", BLOCK.input, (*BLOCK.layers, FullyConnected(7), Softmax()),
    sources=(*(stage.sources for stage in BLOCK.stages[1:]), (8,), (9,)),
)  # fmt: skip
MOST = COUNTS[0]


def planned(network: Network, precision: str) -> tuple[Network, Stack]:
    generator = np.random.default_rng(0)
    network = network.with_parameters(random_parameters(network, generator))
    (plan,) = cut(network.stages, ARITHMETICS[precision], 90)
    assert isinstance(plan, Stack)
    return network, plan


def run(network: Network, plan: Stack, images: np.ndarray) -> np.ndarray:
    return run_program(program(plan, network.input, "float32"), plan, network, images)


@pytest.mark.parametrize("precision", list(ARITHMETICS))
@pytest.mark.parametrize("network", [CHAIN, BRANCHED], ids=lambda network: network.name)
def test_as_one_by_one(network: Network, precision: str) -> None:
    network, plan = planned(network, precision)
    assert plan.held == MOST
    images = np.random.default_rng(1).normal(size=(MOST + 3, *network.input.shape))
    images = images.astype(np.float32)
    alone = run(network, replace(plan, held=1), images)
    np.testing.assert_array_equal(run(network, plan, images), alone)


def test_no_image_is_another_ones() -> None:
    network, plan = planned(CHAIN, "fp16")
    images = np.random.default_rng(1).normal(size=(MOST, *network.input.shape)).astype(np.float32)
    right = run(network, plan, images)
    images[3] = np.nan
    found = run(network, plan, images)
    assert np.isnan(found[3]).all()
    np.testing.assert_array_equal(np.delete(found, 3, 0), np.delete(right, 3, 0))


def test_as_many_as_there_is_room_for() -> None:
    _, plan = planned(CHAIN, "fp16")
    alone = replace(plan, held=1)
    room = replace(plan, held=4).shared_bytes
    assert holding(alone, room).held == 4 and holding(alone, room).phases[-2].shared
    few = holding(alone, room - 4)  # the layer's weights make room
    assert few.held == 4 and not few.phases[-2].shared
    assert holding(alone, alone.shared_bytes // 2).held == 1


def test_other_ends_are_done_one_by_one() -> None:
    """Without a softmax, or where the features are what the kernel is given."""
    for layers in (CHAIN.layers[:-1], (FullyConnected(11), Softmax())):
        assert planned(Network("net", CHAIN.input, layers), "fp16")[1].held == 1
