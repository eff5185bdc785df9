from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.machines import TARGETS
from tests.strategies import networks
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, PlainGroup
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.model import zoo

AVX2, AVX512 = Target(lanes=8, registers=16), Target(lanes=16, registers=32)
targets = st.sampled_from(list(TARGETS.values()))


def test_the_zoo_is_cut_as_the_ladder_says():
    plan = by_images(zoo.network("cifar10"), AVX2)
    names = [[stage.name for stage in group.stages] for group in plan.groups]
    assert names == [
        ["conv1", "relu1", "pool1"], ["conv2", "relu2", "pool2"], ["conv3", "relu3", "pool3"],
        ["fc"], ["softmax"],
    ]  # fmt: skip
    first = plan.groups[0]
    assert isinstance(first, ConvolutionGroup)
    assert first.tile == (2, 2)
    assert first.accumulators == 12
    assert plan.together == 1


def test_large_products_gather_several_vectors_of_images():
    plan = by_images(zoo.network("ece408"), AVX512)
    assert plan.together == 4
    gathered = plan.groups[plan.gathered]
    assert isinstance(gathered, DenseGroup)
    assert gathered.stages[0].name == "fc1"


def test_taps_outside_the_image_are_not_executed():
    """Along an axis of 32, 16 and 8 with a kernel of 5 and padding of 2, 6 taps fall outside."""
    plan = by_images(zoo.network("cifar10"), AVX2)
    for group, size in zip(plan.groups[:3], (32, 16, 8), strict=True):
        assert isinstance(group, ConvolutionGroup)
        nominal = group.stages[0].flops
        assert group.executed_flops == round(nominal * ((5 * size - 6) / (5 * size)) ** 2)


@given(networks(), targets, st.sampled_from([by_images, by_channels]))
def test_every_layer_is_in_one_group(network, target, schedule):
    plan = schedule(network, target)
    names = [stage.name for group in plan.groups for stage in group.stages]
    assert names == [s.name for s in network.stages[1:] if s.kind != "flatten"]
    assert len(plan.pictures) == len(plan.groups) + 1
    for picture, group in zip(plan.pictures[1:], plan.groups, strict=True):
        assert picture.size >= math.prod(group.stages[-1].output_shape)


@given(networks(), targets, st.sampled_from([by_images, by_channels]))
def test_tiles_fit_the_registers_and_cover_every_output_once(network, target, schedule):
    for group in schedule(network, target).groups:
        if isinstance(group, PlainGroup):
            continue
        covered = [
            block.first + index * block.width + item
            for block in group.blocks
            for index in range(block.count)
            for item in range(block.width)
        ]
        channels = group.stages[0].output_shape[0]
        assert covered == list(range(math.ceil(channels / group.unit)))
        if isinstance(group, DenseGroup):
            assert group.images * group.blocks[0].width + group.blocks[0].width < target.registers
            continue
        assert group.tile[0] % group.window[0] == group.tile[1] % group.window[1] == 0
        positions = math.prod(group.tile)
        for block in group.blocks:
            extra = 3 if block.packed > 1 else 1
            assert block.sums(positions) + block.width + extra <= target.registers
        for axis, found in enumerate((group.rows, group.columns)):
            outputs = group.stages[0].output_shape[1 + axis]
            places = [
                index * group.tile[axis] + position
                for span in found
                for index in range(span.first, span.last)
                for position in range(len(span.taps))
            ]
            assert places == list(range(outputs // group.window[axis] * group.window[axis]))


@given(networks(), targets, st.sampled_from([by_images, by_channels]))
def test_no_more_is_executed_than_the_network_has_but_for_lanes_left_over(
    network, target, schedule
):
    plan = schedule(network, target)
    assert plan.executed_flops == sum(group.executed_flops for group in plan.groups)
    if schedule is by_images:
        assert plan.executed_flops <= network.flops


@given(networks(), targets)
def test_both_schedules_have_the_same_parts_in_the_same_order(network, target):
    few, many = by_channels(network, target), by_images(network, target)
    assert [g.stages for g in few.groups] == [g.stages for g in many.groups]


def test_small_channel_counts_get_several_windows_in_a_tile():
    """8 filters are one vector: a 2x2 window alone would leave four sums, each waiting."""
    plan = by_channels(zoo.network("cifar10"), Target(lanes=16, registers=32))
    first = plan.groups[0]
    assert isinstance(first, ConvolutionGroup)
    assert first.accumulators >= 8
    assert first.tile[0] % 2 == first.tile[1] % 2 == 0
