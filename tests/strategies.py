"""Layers and networks for hypothesis to draw."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
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
layers: st.SearchStrategy[Layer] = st.one_of(
    convolutions, poolings, dense, st.builds(ReLU), st.builds(Tanh), st.builds(Flatten)
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
