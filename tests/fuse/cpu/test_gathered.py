"""Few images that go through large products together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.branches import BRANCHES
from tests.fuse.cpu.machines import ON_THIS_CPU, TARGETS, runnable
from tilewright.fuse.cpu import run as run_module
from tilewright.fuse.cpu import shares as shares_module
from tilewright.fuse.cpu import together
from tilewright.fuse.cpu.cost import cost_as_rows, few_costs
from tilewright.fuse.cpu.few import Phase, before_gathered, phases
from tilewright.fuse.cpu.grouped import DenseGroup
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.shares import (
    AS_ROWS,
    Kernel,
    Rows,
    Shares,
    jobs,
    room,
    rows_of,
    shares,
)
from tilewright.fuse.cpu.team import Memory
from tilewright.model import zoo
from tilewright.model.layers import (
    Add,
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
    # More inputs than a chunk has, behind a convolution and alone.
    "long chain": Network("long", Pixels((1, 27, 27)), (
        Convolution(5, 3), MaxPool(2), Flatten(), FullyConnected(37))),
    "long rows": Network("rows", Pixels((1, 23, 25)), (
        Flatten(), FullyConnected(20), ReLU(), FullyConnected(18), Softmax())),
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
    """Odd numbers, every size of a set, more images than one has, one behind a vector; NaN stays in
    its image."""
    generator = np.random.default_rng(5)
    network = NETWORKS[name]
    network = network.with_parameters(random_parameters(network, generator))
    fused = FusedNetwork(network, runnable()[level], single=0.0)
    lanes = fused.many.schedule.target.lanes
    assert fused.few.schedule.gathered < len(fused.few.schedule.groups)
    sizes = (*range(1, lanes), lanes + 1, 2 * lanes - 1)
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
    assert found[front] == Phase(plan.gathered, plan.gathered + 1, found[front].units, 1, True)


ALL, EACH = Phase(1, 2, 5, 1, all_images=True), Phase(2, 3, 1, 1)


@given(st.integers(1, 60), st.integers(1, 5))
def test_products_wait_for_all_images_and_what_follows_for_all_products(images, cores):
    few = Kernel(3, 4, ((Phase(0, 1, 13, 3), 5),), ((ALL, 6), (EACH, 7)))
    (job,) = jobs(shares(images, 64, cores, 0.0), None, few, 64, 64, 10, 20, cores)
    *before, products, after = job.words.tolist()[:-1]
    assert {record[2] for record in before} <= {3, 5}
    for function, record in ((6, products), (7, after)):
        start, needs = record[:2]
        assert record[2] == function
        assert needs == start > 0
    assert products[7:] == [(images - 1) * ALL.units, ALL.step, images * ALL.units]
    assert after[7:] == [0, -(-images // cores), images]


SHARED = Phase(1, 2, 5, 2, all_images=True, shared=True, flop=10**9)
UNITS = Phase(2, 3, 3, 2)


@given(st.integers(1, 90), st.integers(1, 20))
def test_units_of_images_that_waited_are_enough_for_all_cores(images, cores):
    """Every unit of every image once, phase by phase, and jobs that end soon."""
    few = Kernel(3, 4, ((Phase(0, 1, 1, 1), 5),), ((SHARED, 6), (UNITS, 7), (SHARED, 8)))
    made = jobs(Shares(0, 0, images), None, few, 8, 80, 10, 20, cores)
    seen = {6: [], 7: [], 8: []}
    for job in made:
        records = [record for record in job.words.tolist()[:-1] if record[2] != 5]
        for start, needs, function, _, own, *shifts, first, step, last in records:
            assert not own and shifts == [0, 0]
            begins = [each[0] for each in records if each[2] == function]
            assert needs == begins[0] <= start
            for ticket in range(first, last, step):
                units = range(ticket, min(ticket + step, last))
                if function == 7:
                    assert len({unit // 3 for unit in units}) == 1
                    seen[7] += [divmod(unit, 3) for unit in units]
                    continue
                (several,) = {unit // 5 for unit in units}
                begin, count = several >> 20, (several & (2**20 - 1)) + 1
                seen[function] += [(b, u % 5) for b in range(begin, begin + count) for u in units]
    assert sorted(seen[6]) == sorted(seen[8]) == list(np.ndindex(images, 5))
    assert sorted(seen[7]) == list(np.ndindex(images, 3))
    sets = [record for job in made for record in job.words.tolist() if record[2] == 6]
    assert len(sets) == min(images, max(1, 3 * cores // 3))
    assert (len(made) > 1) == (images > cores)


def test_images_that_wait_are_as_many_as_find_room():
    assert room(16, 2) == room(16, 2, 10_000) == 32 == room(8, 2, 1)
    assert room(16, 2, 2**20) == 16
    assert room(16, 2, 2**28) == 2
    # What is left after whole rounds goes in vectors if it is more.
    assert shares(40, 16, 2, 1 / 32, slot=2**20) == Shares(32, 40, 40)
    assert shares(60, 16, 2, 1 / 32, slot=2**20) == Shares(60, 60, 60)
    assert shares(60, 16, 2, 1 / 32) == Shares(32, 60, 60)


ROWS = st.builds(
    Rows, st.integers(1, 60), st.integers(60, 96), st.integers(0, 48), st.integers(1, 16)
)


@given(ROWS, st.integers(1, 4000), st.integers(1, 16), st.integers(0, 40))
def test_rows_go_once_in_pieces_that_there_is_room_for(rows, images, cores, many):
    """Alone through everything, or all of them together phase by phase."""
    many = min(many, images - 1)
    divided = rows.shares(many, images, cores)
    assert divided.many == many
    left = images - many
    few = Kernel(3, 4, (), ((EACH, 5), (ALL, 6), (EACH, 7)))
    made = jobs(divided, Kernel(1, 2), few, 8, 960, 10, 20, cores)
    records = [record for job in made for record in job.words.tolist()[:-1] if record[2] != 1]
    assert all(record[5] == 10 * many for record in records)
    if divided.alone == images:
        assert rows.least <= divided.rows <= rows.piece
        each = -(-left // cores)
        even = max(rows.least, -(-each // -(-each // rows.piece)))
        if divided.rows != even:  # whole sets, which make no core's share much larger
            assert divided.rows % rows.together == 0
            assert -(-left // (cores * divided.rows)) * divided.rows <= 1.02 * each
        if divided.rows % rows.together:
            whole = -(-divided.rows // rows.together) * rows.together
            busiest = whole * -(-left // (cores * whole))
            assert whole > rows.piece or busiest > 1.02 * each
        seen = [i for *_, first, step, last in records for i in range(first, last)]
        assert seen == list(range(left))
        assert all(r[2] == 3 and r[4] == 1 and r[8] == divided.rows for r in records)
    else:
        assert divided.alone == many
        assert divided.rows == left <= rows.apart * cores
        assert [r[2] for r in records] == [5, 6, 7]
        assert records[1][7:] == [(left - 1) * ALL.units, ALL.step, left * ALL.units]


def test_cores_take_rows_for_themselves_where_weights_are_near_or_rows_many():
    def rows(*outputs):
        layers = [Flatten(), *map(FullyConnected, outputs)]
        return rows_of(by_channels(Network("n", Pixels((1, 28, 28)), layers), TARGETS["avx2"]))

    near, far = rows(64, 10), rows(2048, 2048)
    assert near.shares(0, 3, 2) == Shares(0, 3, 3, 4)  # too few for two cores
    assert near.shares(0, 16, 2) == Shares(0, 16, 16, 8)
    assert far.shares(0, 1, 2) == Shares(0, 0, 1, 1)
    assert far.shares(0, 64, 2) == Shares(0, 0, 64, 64)
    assert far.shares(0, 64, 1) == Shares(0, 64, 64, 32)  # of 48 at most
    # Whole sets of 6, unless a core had more to do then.
    assert (near.together, near.piece, far.piece) == (6, 78, 48)
    assert near.shares(0, 2000, 2) == Shares(0, 2000, 2000, 78)  # else 77
    assert far.shares(0, 1000, 2) == Shares(0, 1000, 1000, 46)


@pytest.mark.usefixtures("all_are_large", "not_optimised")
@pytest.mark.parametrize("apart", [0, 40])
def test_any_number_of_rows_comes_out_right(apart, monkeypatch):
    """By each core alone, and by all of them together, in memory that was used before."""
    monkeypatch.setattr(shares_module, "ROWS_APART", ((2**30, apart),))
    monkeypatch.setattr(shares_module, "ROWS_FLOP", 1)
    generator = np.random.default_rng(6)
    network = NETWORKS["long rows"]
    network = network.with_parameters(random_parameters(network, generator))
    fused = FusedNetwork(network, single=0.0)
    images = generator.normal(size=(400, *network.input.shape)).astype(np.float32)
    truth = reference.chain(network.stages, network.parameters, images)[-1]
    right = np.concatenate([fused(images[i : i + 1]) for i in range(len(images))])
    assert compare(right, truth)[1] is None
    for count in (400, 399, 65, 64, 33, 2):
        np.testing.assert_allclose(fused(images[:count]), right[:count], rtol=1e-5, atol=1e-6)


def test_a_product_first_does_not_make_rows_of_convolutions():
    layers = (Flatten(), FullyConnected(4 * 16), Convolution(1, 3, padding=1), Flatten(), Add())
    sources = ((0,), (1,), (0,), (3,), (2, 4))
    branching = Network("both", Pixels((1, 8, 8)), layers, sources=sources)
    assert not by_channels(branching, TARGETS["avx512"]).in_rows
    assert by_channels(NETWORKS["rows"], TARGETS["avx512"]).in_rows


@pytest.mark.usefixtures("not_optimised")
def test_rows_have_memory_beside_vectors_of_images(monkeypatch):
    """A core may compute vectors in what lies before the rows of the next one."""
    made = []

    class Noted(Memory):
        def __init__(self, floats, *others):
            made.append(floats)
            super().__init__(floats, *others)

    monkeypatch.setattr(run_module, "Memory", Noted)
    network = NETWORKS["long rows"]
    network = network.with_parameters(random_parameters(network, np.random.default_rng(6)))
    fused = FusedNetwork(network, single=0.0)
    fused(np.zeros((1, *network.input.shape), np.float32))
    many, few = fused.many.memory, fused.few.memory
    assert made[-1] >= max(many.size, few.size) + fused.rows.piece * few.slot > many.size


@pytest.mark.parametrize("level", TARGETS)
def test_a_perceptron_goes_as_rows_unless_lanes_of_outputs_are_empty(level):
    target = TARGETS[level]

    def estimate(*outputs):
        layers = [Flatten(), *map(FullyConnected, outputs)]
        network = Network("n", Pixels((1, 10, 10)), layers)
        assert by_channels(network, target).in_rows
        return cost_as_rows(by_channels(network, target), by_images(network, target))

    assert estimate(100, 100) < AS_ROWS < estimate(1)


@pytest.mark.parametrize("level", ["avx512", "avx2"])
def test_weights_that_are_read_once_make_more_images_go_one_by_one(level):
    """Half a vector of ece408's images goes image by image, a whole one does not."""
    network, target = zoo.network("ece408"), TARGETS[level]
    single, once, _ = few_costs(by_channels(network, target), by_images(network, target))
    assert 0 < once < 0.5
    assert shares(target.lanes // 2, target.lanes, 1, single, once).many == 0
    assert shares(target.lanes, target.lanes, 1, single, once).many == target.lanes


@pytest.mark.parametrize("level", ["avx512", "avx2"])
def test_where_vectors_of_images_do_not_fit_the_caches_all_go_one_by_one(level):
    """64 channels of 32x32 are 4 MB for 16 images: 1x1 compute little for what they move. What is
    moved counts less the more is computed with it, and pictures that fit cost their turning."""
    target = TARGETS[level]

    def divided(kernel: int, side: int, any_few: bool = True) -> Shares:
        layers = (Convolution(64, kernel, padding=kernel // 2), ReLU())
        network = Network("wide", Pixels((64, side, side)), layers)
        costs = few_costs(by_channels(network, target), by_images(network, target))
        return shares(1000, target.lanes, 2, *costs, any_few=any_few)

    assert divided(1, 32) == Shares(0, 1000, 1000)
    assert divided(1, 32, any_few=False).many > 0  # where there is room for a round
    assert divided(7, 32).many > 0
    assert divided(3, 8).many > 0


def test_images_one_by_one_are_several_jobs():
    """Ctrl-C is answered between two of them."""
    made = jobs(Shares(0, 100, 100), None, Kernel(3, 4, ()), 16, 32, 10, 20, 2)
    assert [job.tickets for job in made] == [32, 32, 32, 4]
    assert [job.words[0, 7:].tolist() for job in made] == [
        [0, 1, 32], [32, 1, 64], [64, 1, 96], [96, 1, 100],
    ]  # fmt: skip
