"""Tiles at the top and at the bottom of a picture leave out rows of zeros, and no others."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.fuse.cuda.interpreter import run_program
from tests.fuse.cuda.memory import Mistake
from tests.fuse.cuda.test_branches import images_of, ready
from tests.fuse.cuda.test_schedule import problem
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import Arrangement, stack_as
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.operations import Geometry, Window
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Convolve
from tilewright.fuse.cuda.sums import Shares
from tilewright.fuse.cuda.to_do import to_do
from tilewright.fuse.cuda.written_out import steps_of
from tilewright.model.layers import Convolution, MaxPool, Pixels, ReLU
from tilewright.model.network import Network


def two(least, most):
    return st.tuples(st.integers(least, most), st.integers(least, most))


@given(
    size=two(1, 70), taps=two(1, 7), stride=two(1, 3), padding=two(0, 8), after=two(0, 8),
    rows=st.integers(1, 12), pool=st.booleans(),
    precision=st.sampled_from(["fp16", "tf32", "tf32x3", "fp32"]),
)  # fmt: skip
def test_only_zeros_are_left_out(size, taps, stride, padding, after, rows, pool, precision):
    axes = zip(size, taps, stride, padding, after, strict=True)
    summed = tuple((each + before + behind - tap) // by + 1
                   for each, tap, by, before, behind in axes)  # fmt: skip
    least = 2 if pool else 1
    assume(min(summed) >= least)
    window = Window(taps, stride, padding, after)
    geometry = Geometry((3, *size), (8, *summed), window, "max" if pool else "")
    rows = min(-(-rows // least) * least, summed[0] // least * least)
    shares = Shares(geometry, ARITHMETICS[precision], rows, 1)
    above, below = shares.left_out
    if precision in ("tf32x3", "fp32"):
        assert (above, below) == (0, 0)
    for number, tile in enumerate(shares.tiles):
        top = number < shares.tops
        bottom = not top and number >= shares.bottoms
        for (first, _), j in itertools.product(filter(None, tile), range(shares.input_rows)):
            out = (top and j < above) or (bottom and j >= shares.input_rows - below)
            assert not out or not 0 <= first * stride[0] - padding[0] + j < size[0]


def planned(network: Network, precision: str) -> Stack:
    operations = to_do(network.stages, HOPPER)
    plan = stack_as(Arrangement(0, 4, 2, 0.1), ARITHMETICS[precision], operations, HOPPER)
    assert plan
    return plan


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_sums_are_the_same(precision):
    layers = Convolution(16, 5, padding=2), ReLU(), MaxPool(2)
    network = ready(Network("net", Pixels((3, 16, 32)), layers))
    plan, images = planned(network, precision), images_of(network)
    (phase,) = plan.sums
    assert phase.shares
    assert phase.shares.left_out == (2, 2)
    assert (
        steps_of(plan, phase)[1] == 3 * 5 * phase.shares.rows * phase.shares.columns
    )  # written out
    assert problem(network, images, precision, [plan]) is None

    made = program(plan, network.input, "float32")
    for field in ("above", "below"):
        item = tuple(
            replace(step, **{field: 3}) if isinstance(step, Convolve) else step
            for step in made.item
        )
        with pytest.raises(Mistake, match=r"^rows are left out that are not zeros"):
            run_program(replace(made, item=item), plan, network, images)
