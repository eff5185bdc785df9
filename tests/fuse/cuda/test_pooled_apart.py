"""Pooling as an operation of its own, behind sums in patches of eight images."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from tests.fuse.cuda.interpreter import interpret
from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import build, choose, cut
from tilewright.fuse.cuda.generations import HOPPER, Generation, generation
from tilewright.fuse.cuda.operations import with_pooling
from tilewright.fuse.cuda.patches_tensor import TensorPatches
from tilewright.fuse.cuda.pooled_apart import better_apart, taken_apart
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
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


def of(channels: int, side: int, *around: Layer) -> Network:
    layers = (Convolution(channels, 1), *around, Flatten(), FullyConnected(10), Softmax())
    return Network("pooled", Pixels((3, side, side)), layers)


def wide(pool: Layer, *after: Layer, channels: int = 256, side: int = 4) -> Network:
    return of(channels, side, Convolution(channels, 3, padding=1), ReLU(), pool, *after)


def residual() -> Network:
    """Two that are pooled, of which the second adds what the first gave, and is added itself."""
    convolution = Convolution(256, 3, padding=1)
    layers = (
        Convolution(256, 1), convolution, ReLU(), MaxPool(2), convolution, Add(), Tanh(),
        convolution, AveragePool(2), Convolution(256, 1, stride=2), Add(), Flatten(),
        FullyConnected(5), Softmax(),
    )  # fmt: skip
    sources = (*((n,) for n in range(5)), (5, 4), (6,), (7,), (8,), (7,), (9, 10))
    sources += tuple((n,) for n in range(11, 14))
    return Network("residual", Pixels((3, 8, 8)), layers, sources=sources)


@pytest.mark.parametrize("precision", ["fp16", "tf32"])
@pytest.mark.parametrize(
    ("network", "pools"),
    [(wide(MaxPool(2)), 1), (wide(AveragePool(2), Tanh()), 1), (residual(), 1)],
    ids=["max", "average", "residual"],
)
def test_what_they_compute(network: Network, pools: int, precision: str) -> None:
    network = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    arithmetic = ARITHMETICS[precision]
    todo = to_do(network.stages, HOPPER)
    places = better_apart(todo, arithmetic, HOPPER)
    assert choose(network.stages, arithmetic, 90).apart == places
    todo = taken_apart(todo, places, HOPPER)
    apart = [each for each in todo if each.kind == "each" and each.pool]
    assert len(apart) == pools
    assert all(todo[taken].pool == "" for each in apart for taken in each.takes)
    made = cut(network.stages, arithmetic, 90)
    assert any(isinstance(each, TensorPatches) and each.eights for each in made)
    images = np.random.default_rng(1).integers(0, 256, (9, *network.input.shape), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
    assert compare(interpret(made, network, images), truth[-1])[1] is None


@pytest.mark.parametrize(
    ("network", "precision", "gpu"),
    [
        (wide(MaxPool(2), side=16), "fp16", HOPPER),  # patches are full
        (wide(MaxPool(2), channels=32), "fp16", HOPPER),  # little to do: a kernel of all layers
        (wide(MaxPool(2)), "fp32", HOPPER),  # a thread has all sums of a window
        (wide(MaxPool(2)), "fp16", generation(80)),  # no patches
        (wide(ReLU()), "fp16", HOPPER),  # nothing to pool
    ],
)
def test_where_it_stays_behind_the_sums(network: Network, precision: str, gpu: Generation) -> None:
    todo = to_do(network.stages, gpu)
    assert better_apart(todo, ARITHMETICS[precision], gpu) == ()
    assert taken_apart(todo, (), gpu) == todo


def test_readers_take_the_pooling() -> None:
    todo = to_do(residual().stages, HOPPER)
    at = next(each.index for each in todo if each.pool)
    made = with_pooling(todo, at)
    assert [each.index for each in made] == list(range(len(todo) + 1))
    assert [each.takes for each in made[: at + 1]] == [each.takes for each in todo[: at + 1]]
    assert made[at + 1].takes == (at,)
    assert made[at].result == made[at].summed == made[at + 1].source
    for old, new in zip(todo[at + 1 :], made[at + 2 :], strict=True):
        assert new.takes == tuple(taken + (taken >= at) for taken in old.takes)
    assert made[at + 1].result == todo[at].result
    assert made[at + 1].stages[-1] == todo[at].stages[-1]


def test_a_choice_says_where_and_a_wrong_one_is_refused() -> None:
    """Not the estimates of the day: without it kernels take the layers that they were for."""
    network, arithmetic = wide(MaxPool(2)), ARITHMETICS["fp16"]
    chosen = choose(network.stages, arithmetic, 90)
    assert chosen.apart == (1,)
    with pytest.raises(TilewrightError, match=r"no kernel of these layers|leave"):
        build(network.stages, arithmetic, 90, structs.replace(chosen, apart=()))
    for wrong in ((0,), (1, 7), (-1,)):
        with pytest.raises(TilewrightError, match=r"options\.apart"):
            build(network.stages, arithmetic, 90, structs.replace(chosen, apart=wrong))
