"""NaN and infinity come out where they must, and nowhere else."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from tests.fuse.cpu.machines import MACHINES, ON_THIS_CPU, runnable
from tilewright.fuse.cpu import build
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_images
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    FullyConnected,
    Join,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.trials import random_parameters

SHAPE = (2, 5, 6)
# Every kind of layer, on its own and where it is fused with others; 5 and 19 filters leave lanes
# over in any vector, which hold other positions or nothing.
LAYERS = {
    "relu": (ReLU(),),
    "tanh": (Tanh(),),
    "max": (MaxPool(2),),
    "max, windows that overlap": (MaxPool(3, stride=1),),
    "average": (AveragePool((2, 3), stride=1),),
    "conv": (Convolution(5, 3, padding=1),),
    "conv, relu": (Convolution(19, (1, 2)), ReLU()),
    "conv, relu, max": (Convolution(5, 3, padding=1), ReLU(), MaxPool(2)),
    "conv, tanh, average": (Convolution(5, (1, 2)), Tanh(), AveragePool(2)),
    "fc, relu": (FullyConnected(5), ReLU()),
    "max, over the edges": (MaxPool(3, stride=2, padding=(1, 1, 0, 2)),),
    "average, over the edges": (AveragePool(3, stride=2, padding=1, ceil=True),),
    "conv, groups": (Convolution(38, 3, padding=(1, 0, 0, 2), groups=2), ReLU()),
    "conv, a filter a channel": (Convolution(2, 2, dilation=2, padding=1, groups=2),),
    "conv, added": (Convolution(2, (1, 3), padding=(0, 1)), Add(), ReLU(), MaxPool(2)),
    "added": (Add(),),
    "multiplied": (Multiply(),),
    "conv, put behind": (Convolution(5, 1), Concat()),
    "softmax": (MaxPool(2), FullyConnected(5), Softmax()),
}
VALUES = (math.nan, math.inf, -math.inf)


def network_of(name):
    layers = LAYERS[name]
    # What joins takes the picture, too.
    sources = tuple((i, 0) if isinstance(layer, Join) else (i,) for i, layer in enumerate(layers))
    network = Network(name, Pixels(SHAPE), layers, sources=sources)
    return network.with_parameters(random_parameters(network, np.random.default_rng(1)))


def spoilt():
    """An image for each value at each place, and good ones before, between and after them."""
    generator = np.random.default_rng(2)
    places = math.prod(SHAPE)
    images = generator.normal(size=(2 * places * len(VALUES) + 1, *SHAPE)).astype(np.float32)
    for index, value in enumerate(VALUES):
        for place in range(places):
            images[2 * (index * places + place) + 1].flat[place] = value
    return images


@cache
def case(name):
    """A network, images that are spoilt, and what it makes of them."""
    network, images = network_of(name), spoilt()
    with np.errstate(invalid="ignore"):
        return (
            network,
            images,
            reference.chain(network.stages, network.parameters, images)[-1].value,
        )


@pytest.mark.usefixtures("quick_elsewhere")
@pytest.mark.parametrize("level", ON_THIS_CPU)
@pytest.mark.parametrize("name", LAYERS)
def test_they_reach_exactly_the_outputs_whose_windows_have_them(name, level):
    network, images, right = case(name)
    assert not np.isfinite(right[1::2]).all()
    assert np.isfinite(right[::2]).all()
    for single in (0.0, math.inf):  # by channels, by images
        actual = FusedNetwork(network, runnable()[level], single)(images)
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(right))
        np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("level", "most"), [("avx512", 3), ("avx2", 3), ("avx", 3), ("sse", 7),
                                             ("neon", 1)])  # fmt: skip
def test_what_a_maximum_costs(level, most):
    """Instructions of a pooling's inner loop for each value, beside its load and the loop's own."""
    on = MACHINES[level]

    def instructions(width):
        network = Network("pool", Pixels((1, 8, 8)), (MaxPool((2, width), stride=1),))
        text = build.assembly(network, on, by_images(network, on.target))
        body = text.partition("\npool:")[2].partition(".Lfunc_end")[0]
        return sum(line.startswith("\t") and line[1] != "." for line in body.splitlines())

    assert instructions(7) - instructions(5) <= 2 * (most + 1)
