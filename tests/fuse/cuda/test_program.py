from __future__ import annotations

import pytest
from benchmarks.strangers import strangers

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Convolve
from tilewright.fuse.cuda.written_out import MOST_IN_KERNEL, MOST_PRODUCTS, written_out
from tilewright.model.layers import Convolution, Pixels, ReLU
from tilewright.model.network import Network


@pytest.mark.parametrize(
    "steps, products, expected",
    [
        (0, 80, 1),  # a sum of half steps alone
        (5, 60, 5),
        (24, 48, 24),  # cifar64 in TF32: all of it
        (36, 144, 6),  # not 8: six rounds of six
        (18, 117, 9),
        (37, 144, 8),  # a prime: the last round is shorter
        (72, 1201, 1),
    ],
)
def test_steps_that_are_written_out(steps, products, expected):
    assert written_out(steps, products) == expected


@pytest.mark.parametrize("precision", ["fp16", "tf32", "tf32x3"])
def test_a_wide_network_is_no_longer_than_the_compiler_can_take(precision):
    """The widest convolutions of All-CNN: 80 s in NVRTC when every step was written out. On a GPU
    that has no other kernels for them."""
    layers = (Convolution(192, 3, padding=1), ReLU(), Convolution(192, 3, padding=1), ReLU())
    network = Network("wide", Pixels((96, 16, 16)), layers)
    found = [
        step
        for plan in cut(network.stages, ARITHMETICS[precision], 80)
        if isinstance(plan, Stack)
        for step in program(plan, network.input, "float32").item
        if isinstance(step, Convolve)
    ]
    assert len(found) == 2
    for step in found:
        each = ARITHMETICS[precision].products ** 2  # three, and what splits and loads
        products = each * step.taps_y * step.rows * step.columns
        assert step.unroll * products <= MOST_PRODUCTS
        assert step.runs * step.full > step.unroll >= (1 if precision == "tf32x3" else 2)


def sums_of(name: str, precision: str) -> list[list[Convolve]]:
    """Of each kernel of a network that nothing was fitted to."""
    network = next(each for each in strangers() if each.name == name)
    return [
        [step for step in program(plan, None, "float32").item if isinstance(step, Convolve)]
        for plan in cut(network.stages, ARITHMETICS[precision], 90)
        if isinstance(plan, Stack)
    ]


def products(step: Convolve) -> int:
    return step.unroll * step.taps_y * step.rows * step.columns


def test_many_wide_layers_are_no_longer_than_the_compiler_can_take():
    """Six of a VGG: 5,856 products, if each layer had as many as one alone may have."""
    (steps,) = sums_of("vgg", "fp16")
    assert sum(map(products, steps)) <= MOST_IN_KERNEL
    for step in steps[1:]:
        alone = written_out(step.runs * step.full, products(step) // step.unroll)
        assert 1 < step.unroll < alone


def test_layers_that_are_alike_count_once():
    (steps,) = sums_of("deep", "tf32")
    assert sum(map(products, steps)) > MOST_IN_KERNEL
    assert all(step.unroll == max(1, step.runs * step.full) for step in steps)
