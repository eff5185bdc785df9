"""Convolutions beside each other as one: which can be, and that it computes the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import interpret
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.beside import Beside, side_by_side
from tilewright.fuse.cuda.cut import build, choose, cut, few_of, with_few
from tilewright.fuse.cuda.operations import operations
from tilewright.fuse.cuda.patches_tensor import TensorPatches
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.model.layers import (
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    LeakyReLU,
    MaxPool,
    Pixels,
    ReLU,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

# Of one picture: other kernels and paddings, on some sides only, taps that are apart, no bias.
SIDES = (
    (Convolution(8, 1), Convolution(8, 3, padding=1)),
    (Convolution(3, 3, padding=1), Convolution(5, 1, bias=False), Convolution(4, 3, padding=1)),
    (Convolution(8, (3, 2), padding=(1, 0, 1, 1)), Convolution(9, (1, 3), padding=(0, 1))),
    (Convolution(8, 2, dilation=2, padding=1), Convolution(6, 3, padding=1)),
    (Convolution(8, 3, stride=2), Convolution(8, (4, 3), stride=2)),
    (Convolution(8, 3, stride=2, padding=1), Convolution(8, 3, stride=2, padding=(1, 1, 0, 1))),
)


def beside(
    convolutions: tuple[Layer, ...], activation: Layer | None = None, after: tuple[Layer, ...] = ()
) -> Network:
    """A convolution, several of what it gives, perhaps activations of each, all behind each other,
    and more layers."""
    layers: list[Layer] = [Convolution(6, 3, padding=1)]
    sources: list[tuple[int, ...]] = [(0,)]
    joined = []
    for each in convolutions:
        layers.append(each)
        sources.append((1,))
        if activation:
            layers.append(activation)
            sources.append((len(layers) - 1,))
        joined.append(len(layers))
    layers.append(Concat())
    sources.append(tuple(joined))
    for each in after:
        layers.append(each)
        sources.append((len(layers) - 1,))
    made = Network("beside", Pixels((2, 14, 15)), tuple(layers), sources=tuple(sources))
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def merged(network: Network) -> list[Beside]:
    return [each for each in side_by_side(network.stages) if isinstance(each, Beside)]


@pytest.mark.parametrize("precision", ["fp16", "tf32", "tf32x3", "fp32"])
@pytest.mark.parametrize("sides", SIDES)
def test_they_compute_the_same(sides: tuple[Layer, ...], precision: str) -> None:
    network = beside(sides, Tanh(), (MaxPool(2), ReLU(), Flatten(), FullyConnected(5)))
    arithmetic = ARITHMETICS[precision]
    assert len(merged(network)) == 1
    images = np.random.default_rng(1).integers(0, 256, (3, 2, 14, 15), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    kernels = cut(network.stages, arithmetic, 90)
    assert compare(interpret(kernels, network, images), truth)[1] is None


def test_all_layers_are_named_once() -> None:
    network = beside(SIDES[0], ReLU(), (MaxPool(2), Convolution(4, 1)))
    made = operations(network.stages, merge=True)
    assert [each.names for each in made] == [
        ("conv1",), ("conv2", "conv3", "relu1", "relu2", "concat", "pool"), ("conv4",)
    ]  # fmt: skip
    named = [name for each in made for name in each.names]
    assert sorted(named) == sorted(each.name for each in network.stages if each.kind != "input")
    # Without activations, and without pooling, what is joined is last, too.
    made = operations(beside(SIDES[0]).stages, merge=True)
    assert made[1].names == ("conv2", "conv3", "concat")


def test_wide_ones_are_one_kernel_of_many_images_and_of_few() -> None:
    sides = Convolution(64, 1), Convolution(64, 3, padding=1)
    layers = (Convolution(32, 3, padding=1), *sides, Concat(), Convolution(8, 1))
    sources = ((0,), (1,), (1,), (2, 3), (4,))
    bare = Network("wide", Pixels((3, 32, 32)), layers, sources=sources)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 32, 32), np.uint8)
    kinds = set()
    for precision, image_count in itertools.product(("fp16", "fp32"), (1, 1000)):
        arithmetic = ARITHMETICS[precision]
        choice = choose(network.stages, arithmetic, 90)
        few = few_of(with_few(choice, network.stages, arithmetic, 90), image_count)
        kernels = build(network.stages, arithmetic, 90, choice, few)
        own = next(each for each in kernels if "conv2" in each.names)
        assert "conv3" in own.names
        kinds.add(type(own))
        truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
        assert compare(interpret(kernels, network, images), truth[-1])[1] is None
    assert kinds >= {TensorPatches, Tiles}


def test_only_where_one_has_a_kernel_for_certain() -> None:
    """Two of 512 filters fit into a stack, one of 1,024 does not; Hopper has tiles for that."""
    layers = (Convolution(512, 3, padding=1), Convolution(512, 1), Convolution(512, 3, padding=1),
              Concat(), Convolution(8, 1))  # fmt: skip
    bare = Network("large", Pixels((3, 14, 14)), layers, sources=((0,), (1,), (1,), (2, 3), (4,)))
    arithmetic = ARITHMETICS["fp32"]
    assert all(len(each.operations) == 1 for each in cut(bare.stages, arithmetic, 86))
    assert any("conv3" in each.names for each in cut(bare.stages, arithmetic, 90))


def test_a_weight_that_is_too_large_is_said_of_its_own_layer() -> None:
    network = beside(SIDES[0])
    parameters = {name: array.copy() for name, array in network.parameters.items()}
    parameters["conv3.weight"][0, 0, 0, 0] = 1e6
    (plan,) = cut(network.stages, ARITHMETICS["fp16"], 90)
    with pytest.raises(DoesNotFit, match="conv3: a weight of 1e"):
        plan.parameters(parameters)


class OtherConvolution(Convolution):
    """Of another kind: nobody says that it is computed the same."""

    kind = "other"


def other_kind() -> Network:
    layers = (OtherConvolution(6, 1), OtherConvolution(6, 1), Concat())
    return Network("net", Pixels((2, 8, 8)), layers, sources=((0,), (0,), (1, 2)))


def other_source() -> Network:
    layers = (Convolution(6, 1), Convolution(6, 1), Convolution(6, 1), Concat())
    return Network("net", Pixels((2, 8, 8)), layers, sources=((0,), (1,), (2,), (2, 3)))


def read_twice() -> Network:
    layers = (Convolution(6, 1), Convolution(6, 1), Concat(), Convolution(6, 1), Concat())
    sources = ((0,), (0,), (1, 2), (1,), (3, 4))
    return Network("net", Pixels((2, 8, 8)), layers, sources=sources)


def other_activations() -> Network:
    layers = (Convolution(6, 1), ReLU(), Convolution(6, 1), LeakyReLU(0.1), Concat())
    sources = ((0,), (1,), (0,), (3,), (2, 4))
    return Network("net", Pixels((2, 8, 8)), layers, sources=sources)


@pytest.mark.parametrize(
    "network",
    [
        other_kind(),
        other_source(),
        read_twice(),
        other_activations(),
        beside((Convolution(8, 1), Convolution(8, 5, padding=2), Convolution(32, 1))),  # much work
        beside((Convolution(8, 2, stride=2), Convolution(8, (8, 9)))),
        beside((Convolution(6, 1, groups=2), Convolution(6, 1))),
    ],
)
def test_others_stay_apart(network: Network) -> None:
    assert not merged(network)


def test_of_two_that_can_be_one_the_second_is_made_of_the_first() -> None:
    """A module after the other: each is one convolution."""
    layers = (
        Convolution(6, 1), Convolution(6, 3, padding=1), Concat(),
        Convolution(6, 1), Convolution(6, 3, padding=1), Concat(), Convolution(2, 1),
    )  # fmt: skip
    sources = ((0,), (0,), (1, 2), (3,), (3,), (4, 5), (6,))
    bare = Network("two", Pixels((2, 8, 8)), layers, sources=sources)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    assert len(merged(network)) == 2
    arithmetic = ARITHMETICS["fp16"]
    images = np.random.default_rng(1).integers(0, 256, (2, 2, 8, 8), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    output = interpret(cut(network.stages, arithmetic, 90), network, images)
    assert compare(output, truth)[1] is None
