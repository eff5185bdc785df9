from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.machines import ON_THIS_CPU, TARGETS, runnable
from tests.strategies import every_network
from tilewright.fuse.cpu import few, tiles
from tilewright.fuse.cpu.cost import FAR_BYTES_A_CYCLE, cycles_once
from tilewright.fuse.cpu.few import phases
from tilewright.fuse.cpu.grouped import ConvolutionGroup, reads_once
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_channels
from tilewright.fuse.cpu.shares import room
from tilewright.fuse.cpu.team import team
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Flatten,
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

LARGE = Network("layer", Pixels((1, 70, 70)), (Convolution(12, 7),))


@given(every_network, st.sampled_from(list(TARGETS.values())))
def test_every_group_has_its_phase_and_one_thread_hands_out_the_results(network, target):
    plan = by_channels(network, target)
    parts = phases(plan)
    groups = [index for phase in parts for index in range(phase.first, phase.last)]
    assert groups == list(range(len(plan.groups)))
    assert parts[0].units == parts[-1].units == 1


@pytest.mark.parametrize("level", TARGETS)
def test_a_layer_worked_on_together_is_handed_out_afterwards(level):
    parts = phases(by_channels(LARGE, TARGETS[level]))
    assert [phase.units > 1 for phase in parts] == [False, True, False]


def test_whoever_is_late_writes_nothing_old():
    """Two images by turns in the same memory: what the other left there must not come out."""
    network = LARGE.with_parameters(random_parameters(LARGE, np.random.default_rng(0)))
    fused = FusedNetwork(network, single=0.0)
    first = np.random.default_rng(1).integers(0, 256, (1, 1, 70, 70), np.uint8)
    images = (first, 255 - first)
    right = [fused(image) for image in images]
    assert not np.array_equal(*right)
    for _ in range(500):
        for image, wanted in zip(images, right, strict=True):
            assert np.array_equal(fused(image), wanted)


FAR = {
    "chain": Network("chain", Pixels((3, 13, 11)), (
        Convolution(37, 3, padding=1), ReLU(), MaxPool(2), Convolution(70, 3, stride=2), Tanh(),
        Convolution(20, (2, 1)), Flatten(), Softmax())),
    # So many taps that tiles at the borders find theirs in the run.
    "large kernels": Network("large", Pixels((2, 15, 17)), (
        Convolution(34, 13, padding=6), AveragePool(2), Convolution(18, 5, padding=(2, 0)))),
    "added to": Network("added", Pixels((4, 6, 9)), (
        Convolution(40, 3, padding=1), Convolution(40, 3, padding=1), Add(), ReLU(),
        Convolution(6, 2, dilation=2)), sources=((0,), (1,), (1, 2), (3,), (4,))),
    # Images wait in the middle: a value of before is added behind, layers between are by rows, or
    # for all images alone, and pooled by themselves.
    "residual": Network("residual", Pixels((3, 8, 7)), (
        Convolution(5, 1), ReLU(), Convolution(40, 3, padding=1), ReLU(),
        Convolution(40, 3, padding=1), Convolution(40, 1), Add(), ReLU(),
        Convolution(3, 1), MaxPool(3, stride=2), Convolution(50, 3, padding=1), Flatten(),
        Softmax()),
        sources=(*((n,) for n in range(5)), (2,), (5, 6), *((n,) for n in range(7, 13)))),
}  # fmt: skip


@pytest.mark.usefixtures("quick_elsewhere")
@pytest.mark.parametrize("level", ON_THIS_CPU)
@pytest.mark.parametrize("name", FAR)
def test_layers_whose_weights_are_far_are_shared_out_by_blocks_of_filters(name, level, monkeypatch):
    monkeypatch.setattr(tiles, "STAYING_BYTES_A_LANE", 0)
    monkeypatch.setattr(few, "SHARED_FLOP", 1)
    generator = np.random.default_rng(3)
    network = FAR[name].with_parameters(random_parameters(FAR[name], generator))
    fused = FusedNetwork(network, runnable()[level], single=0.0)
    plan = fused.few.schedule
    cut = [group for group in plan.groups if isinstance(group, ConvolutionGroup)]
    assert any(group.by_blocks for group in cut)
    # Images wait before the first that goes over all of them, not always the first of all.
    assert plan.gathered == next(i for i, g in enumerate(plan.groups) if reads_once(g))
    assert (plan.gathered > 0) == (name in ("chain", "residual"))
    for group, phase in ((plan.groups[p.first], p) for p in phases(plan) if p.units > 1):
        assert isinstance(group, ConvolutionGroup)
        assert phase.all_images == phase.shared == group.waits <= group.by_blocks
        if group.by_blocks:
            assert phase.units == sum(block.count for block in group.blocks)
    # The last are more than there is room for.
    lanes, slot = fused.many.schedule.target.lanes, fused.few.memory.slot
    sizes = (1, 2, 3, (most := room(lanes, team().cores, slot)), most + 3)
    images = generator.integers(0, 256, (sum(sizes), *network.input.shape), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images)[-1]
    parts = np.split(images, np.cumsum(sizes)[:-1])
    assert compare(np.concatenate([fused(part) for part in parts]), truth)[1] is None
    values = [part * network.input.scale + network.input.shift for part in parts]
    found = [fused(part.astype(np.float32)) for part in values]
    assert compare(np.concatenate(found), truth)[1] is None


@pytest.mark.usefixtures("quick_elsewhere")
@pytest.mark.parametrize("level", ON_THIS_CPU)
def test_a_single_row_is_shared_out_by_blocks_of_filters(level, monkeypatch):
    """One row of tiles would be one core's."""
    monkeypatch.setattr(few, "SHARED_FLOP", 1)
    layers = (
        Convolution(150, (1, 9)), ReLU(), MaxPool((1, 4)), Convolution(140, (1, 3)), ReLU(),
        Flatten(), Softmax(),
    )  # fmt: skip
    bare = Network("one row", Pixels((2, 1, 90)), layers)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    fused = FusedNetwork(network, runnable()[level], single=0.0)
    plan = fused.few.schedule
    cut = [group for group in plan.groups if isinstance(group, ConvolutionGroup)]
    assert len(cut) == 2 and all(group.by_blocks for group in cut) and not cut[0].waits
    assert sum(phase.units > 1 for phase in phases(plan)) == 2
    images = np.random.default_rng(1).integers(0, 256, (3, *network.input.shape), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images)[-1]
    assert compare(np.concatenate([fused(images[:1]), fused(images[1:])]), truth)[1] is None


def test_large_weights_are_read_once_by_blocks_and_small_ones_or_large_pictures_by_rows() -> None:
    def by_blocks(channels: int, filters: int, side: int) -> bool:
        layers = (Convolution(filters, 3, padding=1),)
        network = Network("one", Pixels((channels, side, side)), layers)
        (group,) = by_channels(network, TARGETS["avx512"]).groups
        assert isinstance(group, ConvolutionGroup)
        return group.by_blocks

    def once(channels: int, filters: int, side: int) -> float:
        layers = (Convolution(filters, 3, padding=1),)
        network = Network("one", Pixels((channels, side, side)), layers)
        return cycles_once(by_channels(network, TARGETS["avx512"]))

    assert once(512, 512, 4) == pytest.approx(4 * 9 * 512**2 / FAR_BYTES_A_CYCLE)
    assert once(64, 64, 8) == once(128, 256, 200) == 0
    assert by_blocks(512, 512, 4)
    assert by_blocks(256, 256, 8)
    assert not by_blocks(64, 64, 8)
    assert not by_blocks(128, 256, 200)
