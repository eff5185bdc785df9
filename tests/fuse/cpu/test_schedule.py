from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import networks
from tilewright.fuse.cpu.schedule import (
    ConvolutionGroup,
    DenseGroup,
    Target,
    channel_blocks,
    channel_width,
    schedule,
    spans,
)
from tilewright.model import zoo

AVX2, AVX512 = Target(lanes=8, registers=16), Target(lanes=16, registers=32)
targets = st.sampled_from([AVX2, AVX512, Target(lanes=4, registers=16)])


@given(st.integers(1, 300), st.integers(1, 8), targets)
def test_channel_blocks_cover_every_channel_once_within_the_registers(channels, positions, target):
    width = channel_width(channels, positions, target)
    assert width == 1 or positions * width + width + 1 <= target.registers
    covered = [
        b.first + i * b.width + c
        for b in channel_blocks(channels, width)
        for i in range(b.count)
        for c in range(b.width)
    ]
    assert covered == list(range(channels))
    assert all(block.width >= 1 and block.count >= 1 for block in channel_blocks(channels, width))


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 7), st.integers(1, 4),
       st.integers(0, 8), st.booleans())  # fmt: skip
def test_spans_cover_an_axis_and_know_its_valid_taps(size, tile, kernel, stride, padding, pooled):
    if size + 2 * padding < kernel:
        return
    outputs = (size + 2 * padding - kernel) // stride + 1
    found = spans(outputs, tile, kernel, stride, padding, size, pooled)
    seen = {}
    for span in found:
        for index in range(span.first, span.last):
            for d, (low, high) in enumerate(span.taps):
                position = index * tile + d
                assert position not in seen
                seen[position] = [*range(low, high)]
    assert sorted(seen) == list(range(outputs // tile * tile if pooled else outputs))
    for position, taps in seen.items():
        inside = [k for k in range(kernel) if 0 <= position * stride + k - padding < size]
        assert taps == inside


def test_the_zoo_is_cut_as_the_ladder_says():
    plan = schedule(zoo.network("cifar10"), AVX2)
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
    plan = schedule(zoo.network("ece408"), AVX512)
    assert plan.together == 4
    gathered = plan.groups[plan.gathered]
    assert isinstance(gathered, DenseGroup)
    assert gathered.stages[0].name == "fc1"


def test_taps_outside_the_image_are_not_executed():
    """Along an axis of 32, 16 and 8 with a kernel of 5 and padding of 2, 6 taps fall outside."""
    plan = schedule(zoo.network("cifar10"), AVX2)
    for group, size in zip(plan.groups[:3], (32, 16, 8), strict=True):
        assert isinstance(group, ConvolutionGroup)
        nominal = group.stages[0].flops
        assert group.executed_flops == round(nominal * ((5 * size - 6) / (5 * size)) ** 2)


@given(networks(), targets)
def test_every_layer_is_in_one_group(network, target):
    plan = schedule(network, target)
    names = [stage.name for group in plan.groups for stage in group.stages]
    assert names == [s.name for s in network.stages[1:] if s.kind != "flatten"]
    assert len(plan.pictures) == len(plan.groups) + 1
    for picture, group in zip(plan.pictures[1:], plan.groups, strict=True):
        assert picture.size >= math.prod(group.stages[-1].output_shape)
