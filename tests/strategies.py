"""Layers and networks for hypothesis to draw, and some that were drawn once and for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    TYPES,
    Add,
    AveragePool,
    Concat,
    Convolution,
    Elementwise,
    Flatten,
    FullyConnected,
    Layer,
    LeakyReLU,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    Softmax,
    Take,
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
takes = st.builds(Take, *[st.lists(st.integers(0, 5), min_size=1, max_size=9) for _ in range(2)])
dense = st.builds(FullyConnected, st.integers(1, 9), bias=st.booleans())
# Every kind that there is, a new one too; one whose setting turns the order round.
activations: list[Layer] = [
    *(kind() for kind in TYPES.values() if issubclass(kind, Elementwise)),
    LeakyReLU(-0.5),
]
layers: st.SearchStrategy[Layer] = st.one_of(
    convolutions, poolings, takes, dense, st.builds(Flatten), st.sampled_from(activations)
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


@st.composite
def graphs(draw: Any) -> Network:
    """Layers that each take any outputs before them, with all that is out of the ordinary."""
    pixels = Pixels((draw(st.integers(1, 4)), *draw(pairs.map(lambda p: (p[0] + 3, p[1] + 4)))))
    chosen: list[Layer] = []
    sources: list[tuple[int, ...]] = []
    shapes = [pixels.shape]

    def add(layer: Layer, *taken: int) -> int:
        shapes.append(layer.output_shape(*(shapes[index] for index in taken)))
        chosen.append(layer)
        sources.append(taken)
        return len(chosen)

    last = 0
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.sampled_from([i for i, shape in enumerate(shapes) if len(shape) == 3]))
        kind = draw(st.sampled_from(("convolution", "depthwise", "pooling", "take", "activation")))
        channels = shapes[place][0]
        sides = tuple(draw(st.integers(0, 2)) for _ in range(4))
        try:
            if kind == "convolution":
                groups = draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0]))
                filters = groups * draw(st.integers(1, 3))
                last = add(Convolution(filters, draw(pairs), stride=draw(st.integers(1, 2)),
                                       padding=sides, dilation=draw(st.integers(1, 2)),
                                       groups=groups), place)  # fmt: skip
            elif kind == "depthwise":
                last = add(Convolution(channels, 3, padding=1, groups=channels), place)
            elif kind == "pooling":
                ceil, average = draw(st.booleans()), draw(st.booleans())
                pool = MaxPool if average else AveragePool
                last = add(pool(3, stride=2, padding=sides, ceil=ceil), place)
            elif kind == "take":
                last = add(draw(takes), place)
            else:
                last = add(draw(st.sampled_from(activations)), place)
        except TilewrightError:
            continue
        alike = [i for i, shape in enumerate(shapes) if shape == shapes[last] and i != last]
        beside = [i for i, s in enumerate(shapes) if s[1:] == shapes[last][1:] and i != last]
        if alike and draw(st.booleans()):
            last = add(Add(), last, *draw(st.lists(st.sampled_from(alike), min_size=1, max_size=2)))
        elif beside and draw(st.booleans()):
            last = add(Concat(), draw(st.sampled_from(beside)), last)
        elif draw(st.booleans()):
            channels, height, width = shapes[last]
            gates = [MaxPool((height, width)), Convolution(1, 1), FullyConnected(channels)]
            last = add(Multiply(), last, add(draw(st.sampled_from(gates)), last))
    # What nobody took yet meets at the end.
    loose = [i for i in range(len(shapes)) if not any(i in taken for taken in sources)]
    ends = [add(FullyConnected(5), index) for index in loose]
    end = ends[0] if len(ends) == 1 else add(Add() if draw(st.booleans()) else Concat(), *ends)
    add(Softmax(), end)
    return Network("drawn graph", pixels, tuple(chosen), sources=tuple(sources))


every_network = networks() | graphs()


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
