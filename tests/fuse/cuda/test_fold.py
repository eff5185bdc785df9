"""A first convolution for four positions at once: the same results, where it pays."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import run_program
from tilewright.fuse.cuda import fold
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import Arrangement, stack_as
from tilewright.fuse.cuda.emit_stack import program_text
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import FetchImage
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model import zoo
from tilewright.model.layers import AveragePool, Convolution, Layer, MaxPool, Pixels, ReLU, Tanh
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters


def network(shape: tuple[int, int, int], *layers: Layer) -> Network:
    bare = Network("net", Pixels(shape), layers)
    return bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))


def planned(net: Network, precision: str, wide: bool = False) -> Stack:
    todo = to_do(net.stages, HOPPER)
    plan = stack_as(Arrangement(0, 4, 4, 0.5, wide), ARITHMETICS[precision], todo, HOPPER)
    assert plan
    return plan


# Two columns for 4 filters that are left and for fewer, none left, an odd number, zeros around.
CASES = {
    "12 of 7x7": ((1, 20, 20), Convolution(12, 7), Tanh(), MaxPool(2)),
    "3, no bias": ((1, 14, 14), Convolution(3, 3, bias=False), ReLU(), AveragePool(2)),
    "8, zeros around": ((1, 16, 12), Convolution(8, 5, padding=2), MaxPool(2), ReLU()),
    "5 of 6x6": ((1, 16, 16), Convolution(5, 6), Tanh(), MaxPool(2)),
}


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
@pytest.mark.parametrize("case", CASES)
def test_as_position_by_position(
    case: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, *layers = CASES[case]
    net = network(shape, *layers, Convolution(8, 3), ReLU())  # which reads what is between pixels
    images = np.random.default_rng(1).integers(0, 256, (2, *shape), np.uint8)
    found = []
    for pays in (10.0, 0.0):
        monkeypatch.setattr(fold, "PAYS", pays)
        fold.folded.cache_clear()
        plan = planned(net, precision)
        assert plan.phases[0].operation.folded == (pays > 0)
        made = program(plan, net.input, "uint8")
        assert ("fill_fours<" in program_text(made, "kernel")) == (pays > 0)
        found.append(run_program(made, plan, net, images))
    fold.folded.cache_clear()
    np.testing.assert_array_equal(*found)


def test_only_where_it_pays() -> None:
    def folds(name: str) -> list[str]:
        first = to_do(zoo.network(name).stages, HOPPER)[0]
        return [name for name, each in ARITHMETICS.items() if fold.folded(first, each).folded]

    # fp32 has no columns of 8 to fill; in parts six columns of weights take too many registers.
    assert folds("ece408") == ["fp16", "tf32"]
    assert folds("cifar10") == []  # a row of three channels is a step already


@pytest.mark.parametrize(
    "shape, layer",
    [
        ((1, 21, 20), Convolution(12, 7)),
        ((1, 20, 20), Convolution(12, 7, padding=3)),
        ((1, 20, 20), Convolution(12, 7, stride=2)),
        ((1, 20, 20), Convolution(12, 4, dilation=2)),
    ],
    ids=["odd height", "odd padding", "stride", "dilation"],
)
def test_what_is_not_folded(shape: tuple[int, int, int], layer: Convolution) -> None:
    first = to_do(network(shape, layer, MaxPool(2)).stages, HOPPER)[0]
    assert first.pool
    assert fold.folded(first, ARITHMETICS["fp16"]) is first


def test_bytes_of_images_that_begin_on_four() -> None:
    net = network((1, 14, 14), Convolution(4, 3), MaxPool(2))
    made = program(planned(net, "fp16"), net.input, "uint8")
    assert [step.bytes for step in made.item if isinstance(step, FetchImage)] == [196]


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_what_is_not_a_number_arrives(precision: str) -> None:
    net = network((1, 10, 10), Convolution(12, 7), Tanh(), MaxPool(2))
    images = np.random.default_rng(1).normal(size=(2, 1, 10, 10)).astype(np.float32)
    images[0, 0, 4, 4] = np.nan
    plan = planned(net, precision)
    assert plan.phases[0].operation.folded
    found = run_program(program(plan, net.input, "float32"), plan, net, images)
    assert np.isnan(found[0]).all() and np.isfinite(found[1]).all()
