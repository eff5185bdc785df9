"""Layers and networks for hypothesis to draw, and some that were drawn once and for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    TYPES,
    AveragePool,
    Convolution,
    Elementwise,
    Flatten,
    FullyConnected,
    Layer,
    LeakyReLU,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network

small = st.integers(1, 4)
pairs = st.tuples(small, small)
pictures = st.tuples(st.integers(1, 5), st.integers(1, 12), st.integers(1, 12))

convolutions = st.builds(
    Convolution,
    st.integers(1, 7),
    st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=pairs,
    padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    bias=st.booleans(),
)
poolings = st.builds(MaxPool, pairs, stride=pairs) | st.builds(AveragePool, pairs, stride=pairs)
dense = st.builds(FullyConnected, st.integers(1, 9), bias=st.booleans())
# Every kind that there is, a new one too; one whose setting turns the order round.
activations: list[Layer] = [
    *(kind() for kind in TYPES.values() if issubclass(kind, Elementwise)),
    LeakyReLU(-0.5),
]
layers: st.SearchStrategy[Layer] = st.one_of(
    convolutions, poolings, dense, st.builds(Flatten), st.sampled_from(activations)
)


@st.composite
def networks(draw: Any) -> Network:
    """Any sequence of layers that fits together, closed with a classifier."""
    pixels = Pixels(draw(pictures))
    chosen: list[Layer] = []
    shape = pixels.shape
    for layer in draw(st.lists(layers, max_size=6)):
        try:
            shape = layer.output_shape(shape)
        except TilewrightError:
            continue
        chosen.append(layer)
    return Network("drawn", pixels, (*chosen, FullyConnected(draw(st.integers(2, 6))), Softmax()))


def fixed_networks(count: int) -> list[Network]:
    """Networks of odd shapes, the same each time, for devices whose compilers take their time.

    Kernels for shapes drawn anew would be compiled anew in every run and for every rung; here
    only weights and images are fresh. Each has two convolutions, so that every rung's own kernels
    also read what a kernel wrote.
    """
    generator = np.random.default_rng(20261115)

    def draw(low: int, high: int) -> int:
        return int(generator.integers(low, high + 1))

    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(low, high), draw(low, high)

    def convolution() -> Convolution:
        size, stride, padding = pair(1, 5), pair(1, 3), pair(0, 3)
        return Convolution(draw(2, 7), size, stride=stride, padding=padding, bias=draw(0, 2) > 0)

    others = [
        *(lambda: MaxPool(pair(1, 4), stride=pair(1, 4)), ReLU, Tanh),
        *(lambda: AveragePool(pair(1, 4), stride=pair(1, 4)), Flatten),
    ]
    found: list[Network] = []
    while len(found) < count:
        between, behind = others[len(found) % 3], others[3 + len(found) % 2]
        layers: list[Layer] = [convolution(), between(), convolution(), behind()]
        layers += [FullyConnected(draw(2, 9), bias=draw(0, 1) > 0), Softmax()]
        try:
            found.append(Network("fixed", Pixels((len(found) + 1, *pair(5, 12))), tuple(layers)))
        except TilewrightError:
            continue  # they do not fit together
    return found
