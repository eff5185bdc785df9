"""Few images that go through large products together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.branches import BRANCHES
from tests.fuse.cpu.machines import ON_THIS_CPU, TARGETS, runnable
from tilewright.fuse.cpu import together
from tilewright.fuse.cpu.cost import few_costs
from tilewright.fuse.cpu.few import Phase, before_gathered, phases
from tilewright.fuse.cpu.grouped import DenseGroup
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.shares import Kernel, Shares, jobs, sets, shares
from tilewright.model import zoo
from tilewright.model.layers import (
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
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

NETWORKS = {
    "chain": Network("chain", Pixels((2, 9, 9)), (
        Convolution(5, 3), ReLU(), MaxPool(2), Flatten(), FullyConnected(37), Tanh(),
        FullyConnected(4), Softmax())),
    "rows": Network("rows", Pixels((1, 5, 7)), (Flatten(), FullyConnected(20), ReLU(),
                                                FullyConnected(18))),
    "branches": BRANCHES["gathered"],
}  # fmt: skip


@pytest.fixture
def all_are_large(monkeypatch):
    """Small products go the way of large ones."""
    monkeypatch.setattr(together, "LARGE_WEIGHTS_BYTES", 0)


@pytest.mark.usefixtures("all_are_large", "not_optimised")
@pytest.mark.parametrize("level", ON_THIS_CPU)
@pytest.mark.parametrize("name", NETWORKS)
def test_any_few_images_come_out_right(name, level):
    """Odd numbers, more images than a set has, one behind a vector; NaN stays in its image."""
    generator = np.random.default_rng(5)
    network = NETWORKS[name]
    network = network.with_parameters(random_parameters(network, generator))
    fused = FusedNetwork(network, runnable()[level], single=0.0)
    lanes = fused.many.schedule.target.lanes
    assert fused.few.schedule.gathered < len(fused.few.schedule.groups)
    sizes = (1, 2, 3, 5, lanes - 1, lanes + 1)
    pixels = generator.integers(0, 256, (sum(sizes), *network.input.shape), np.uint8)
    for images in (pixels, generator.normal(size=pixels.shape).astype(np.float32)):
        parts = np.split(images, np.cumsum(sizes)[:-1])
        truth = reference.chain(network.stages, network.parameters, images)[-1]
        _, problem = compare(np.concatenate([fused(part) for part in parts]), truth)
        assert problem is None, problem
    images[1] = np.nan
    spoilt = np.isnan(fused(images[:3])).reshape(3, -1)
    assert spoilt[1].any()
    assert not spoilt[[0, 2]].any()


@pytest.mark.parametrize("level", TARGETS)
def test_a_large_product_takes_as_many_images_as_registers_have_sums_for(level):
    target = TARGETS[level]
    plan = by_channels(zoo.network("ece408"), target)
    group = plan.groups[plan.gathered]
    assert isinstance(group, DenseGroup)
    width = max(block.width for block in group.blocks)
    assert 1 < group.images <= 16
    assert group.images * width + width + 1 <= target.registers
    found = phases(plan)
    front = before_gathered(plan)
    assert all(phase.last <= plan.gathered for phase in found[:front])
    assert found[front] == Phase(
        plan.gathered, plan.gathered + 1, found[front].units, 1, group.images
    )


@given(st.integers(0, 500), st.integers(1, 16))
def test_sets_are_few_and_about_equal(images, most):
    made = list(sets(images, most))
    assert [i for first, count in made for i in range(first, first + count)] == list(range(images))
    assert len(made) == -(-images // most)
    sizes = {count for _, count in made}
    assert not sizes or max(sizes) - min(sizes) <= 1


SETS, EACH = Phase(1, 2, 5, 1, images=4), Phase(2, 3, 1, 1)


@given(st.integers(1, 60), st.integers(1, 5))
def test_products_wait_for_all_images_and_what_follows_for_all_products(images, cores):
    few = Kernel(3, 4, ((Phase(0, 1, 13, 3), 5),), ((SETS, 6), (EACH, 7)))
    (job,) = jobs(shares(images, 64, cores, 0.0), None, few, 64, 64, 10, 20, cores)
    products, after, computed = [], [], 0
    for start, needs, function, _, _, _, _, first, step, last in job.words.tolist()[:-1]:
        if function == 6:
            number = first // SETS.units
            begin, count = number // SETS.images, number % SETS.images + 1
            assert needs == computed
            assert last - first == SETS.units
            products += range(begin, begin + count)
        elif function == 7:
            assert needs == start
            after += range(first, last)
        else:
            computed = start + -(-(last - first) // step)
    assert products == after == list(range(images))


@pytest.mark.parametrize("level", ["avx512", "avx2"])
def test_weights_that_are_read_once_make_more_images_go_one_by_one(level):
    """Half a vector of ece408's images goes image by image, a whole one does not."""
    network, target = zoo.network("ece408"), TARGETS[level]
    single, once = few_costs(by_channels(network, target), by_images(network, target))
    assert 0 < once < 0.5
    assert shares(target.lanes // 2, target.lanes, 1, single, once).many == 0
    assert shares(target.lanes, target.lanes, 1, single, once).many == target.lanes


def test_where_vectors_of_images_do_not_fit_the_caches_all_go_one_by_one():
    """64 channels of 32x32 are 4 MB for 16 images; with AVX2 half of that, which cost nothing."""
    network = Network("wide", Pixels((64, 32, 32)), (Convolution(64, 3, padding=1), ReLU()))
    found = {}
    for level in ("avx512", "avx2"):
        target = TARGETS[level]
        costs = few_costs(by_channels(network, target), by_images(network, target))
        found[level] = shares(1000, target.lanes, 2, *costs, any_few=True)
        assert shares(1000, target.lanes, 2, *costs).many > 0  # where there is room for a round
    assert found["avx512"] == Shares(0, 1000, 1000)
    assert found["avx2"].many > 0


def test_images_one_by_one_are_several_jobs():
    """Ctrl-C is answered between two of them."""
    made = jobs(Shares(0, 100, 100), None, Kernel(3, 4, ()), 16, 32, 10, 20, 2)
    assert [job.tickets for job in made] == [32, 32, 32, 4]
    assert [job.words[0, 7:].tolist() for job in made] == [
        [0, 1, 32], [32, 1, 64], [64, 1, 96], [96, 1, 100],
    ]  # fmt: skip
