from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.machines import TARGETS
from tests.strategies import every_network
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, PlainGroup
from tilewright.fuse.cpu.parameters import layout
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.tiles import Target
from tilewright.model import zoo
from tilewright.model.layers import Add, Convolution, MaxPool, Pixels, ReLU
from tilewright.model.network import Network

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


@given(every_network, targets, st.sampled_from([by_images, by_channels]))
def test_every_layer_is_in_one_group(network, target, schedule):
    plan = schedule(network, target)
    names = [stage.name for group in plan.groups for stage in group.stages]
    assert names == [s.name for s in network.stages[1:] if s.kind != "flatten"]
    assert len(plan.pictures) == len(plan.groups) + 1
    for picture, group in zip(plan.pictures[1:], plan.groups, strict=True):
        assert picture.size >= math.prod(group.stages[-1].output_shape)


@given(every_network, targets, st.sampled_from([by_images, by_channels]))
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
        parts = group.parts if isinstance(group, ConvolutionGroup) else 1
        channels = group.stages[0].output_shape[0] // parts
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


@given(every_network, targets, st.sampled_from([by_images, by_channels]))
def test_no_more_is_executed_than_the_network_has_but_for_lanes_left_over(
    network, target, schedule
):
    plan = schedule(network, target)
    assert plan.executed_flops == sum(group.executed_flops for group in plan.groups)
    if schedule is by_images:
        assert plan.executed_flops <= network.flops


@given(every_network, targets)
def test_both_schedules_have_the_same_parts_in_the_same_order(network, target):
    few, many = by_channels(network, target), by_images(network, target)
    assert [g.stages for g in few.groups] == [g.stages for g in many.groups]


@given(every_network, targets, st.sampled_from([by_images, by_channels]))
def test_no_value_is_overwritten_before_its_last_reader(network, target, schedule):
    """Whoever takes a value finds it where it was put, of every vector of images that is there."""
    plan = schedule(network, target)
    places = layout(plan)
    images = 3 if places.slot else plan.together
    before = images * places.slot
    owners = np.full(before + places.size, -1)

    def place(value, vector):
        size = plan.pictures[value].size
        shift = -places.slot if places.slot else size
        start = before + places.values[value] + vector * shift * (value in plan.kept)
        return slice(start, start + size)

    def put(value, vector):
        owners[place(value, vector)] = number(value, vector)

    def found(value, vector):
        there = place(value, vector)
        return (
            there.start >= 0
            and there.stop <= len(owners)
            and (owners[there] == number(value, vector)).all()
        )

    def number(value, vector):
        return value * images + vector

    def run(index, vector):
        put(index + 1, vector)
        assert all(found(value, vector) for value in plan.takes[index])

    for vector in range(images):
        put(0, vector)
        for index in range(plan.gathered):
            run(index, vector)
    for index in range(plan.gathered, len(plan.groups)):
        for vector in range(images):
            run(index, vector)
    assert all(found(len(plan.groups), vector) for vector in range(images))


RESIDUAL = Network(
    "residual", Pixels((3, 8, 8)),
    (Convolution(4, 3, padding=1), ReLU(), Convolution(4, 3, padding=1), Convolution(4, 1), Add(),
     ReLU(), MaxPool(2), Add()),
    sources=((0,), (1,), (2,), (2,), (3, 4), (5,), (6,), (7, 7)),
)  # fmt: skip


def test_a_sum_is_taken_along_by_the_convolution_before_it():
    plan = by_images(RESIDUAL, AVX2)
    names = [[stage.name for stage in group.stages] for group in plan.groups]
    assert names == [
        ["conv1", "relu1"], ["conv2"], ["conv3", "add1", "relu2", "pool"], ["add2"],
    ]  # fmt: skip
    assert plan.takes == ((0,), (1,), (1, 2), (3, 3))


def test_a_chain_needs_two_regions_and_a_branch_one_more():
    plan = by_images(RESIDUAL, AVX2)
    assert len(set(layout(plan).values[: plan.gathered])) == 3
    chain = by_images(zoo.network("cifar10"), AVX2)
    assert len(set(layout(chain).values[: chain.gathered])) == 2


def test_what_somebody_else_takes_is_not_fused():
    layers = (Convolution(4, 3), ReLU(), Add())
    plan = by_images(Network("n", Pixels((3, 8, 8)), layers, sources=((0,), (1,), (1, 2))), AVX2)
    assert [len(group.stages) for group in plan.groups] == [1, 1, 1]


@pytest.mark.parametrize(("unit", "parts"), [(by_images, 20), (by_channels, 1)])
def test_a_filter_a_channel_costs_no_more_than_its_taps(unit, parts):
    """Lanes are images, or channels of the input and the output: never zeros between them."""
    layers = (Convolution(20, 1), Convolution(20, 3, groups=20))
    group = unit(Network("n", Pixels((3, 8, 8)), layers), AVX512).groups[1]
    assert isinstance(group, ConvolutionGroup)
    assert group.parts == parts
    channels = 20 if unit is by_images else 32
    assert group.executed_flops == 2 * 9 * 6 * 6 * channels


def test_small_channel_counts_get_several_windows_in_a_tile():
    """8 filters are one vector: a 2x2 window alone would leave four sums, each waiting."""
    plan = by_channels(zoo.network("cifar10"), Target(lanes=16, registers=32))
    first = plan.groups[0]
    assert isinstance(first, ConvolutionGroup)
    assert first.accumulators >= 8
    assert first.tile[0] % 2 == first.tile[1] % 2 == 0
