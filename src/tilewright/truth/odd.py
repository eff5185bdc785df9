"""Layers and networks that are tried whatever is at hand: odd shapes, windows, branches, joins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.model.layers import (
    TYPES,
    Add,
    AveragePool,
    Concat,
    Convolution,
    Elementwise,
    Flatten,
    FullyConnected,
    Join,
    Layer,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    Shape,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network

Generator = np.random.Generator

SEQUENCES = tuple(Network("layers", Pixels(shape), layers) for shape, layers in (
    ((2, 9, 8), (Convolution(5, 3, padding=1), ReLU(), MaxPool(2))),
    ((3, 11, 7), (Convolution(4, (3, 2)), Tanh(), MaxPool(2))),
    ((2, 8, 9), (Convolution(3, 3, stride=2, bias=False), ReLU(), AveragePool(2))),
    ((1, 6, 7), (Convolution(3, 3), MaxPool(2), ReLU())),
    ((5, 4, 4), (Convolution(33, 1), Tanh())),
    ((2, 7, 7), (Convolution(4, 3, bias=False), Flatten(), FullyConnected(5))),
    (
        (1, 13, 12),
        (
            *(Convolution(6, 5, padding=2), ReLU(), MaxPool(2)),
            *(Convolution(7, 3, padding=1), ReLU(), MaxPool(3, stride=2)),
            *(Flatten(), FullyConnected(10), Softmax()),
        ),
    ),
    ((4, 5, 5), (FullyConnected(150), Tanh(), FullyConnected(5), Softmax())),
    ((6, 3, 3), (Flatten(), FullyConnected(33, bias=False), ReLU(), FullyConnected(10))),
))  # fmt: skip


# Branches of different lengths, one within another, several readers of one output, joins in a row.
GRAPHS = (
    Network(
        "residual", Pixels((3, 7, 6)),
        (Convolution(5, 3, padding=1), ReLU(), Convolution(5, 3, padding=1), Add(), ReLU(),
         FullyConnected(4)),
        sources=((0,), (1,), (2,), (3, 2), (4,), (5,)),
    ),
    Network(
        "projected", Pixels((4, 9, 8)),
        (Convolution(6, 3, stride=2, padding=1), ReLU(), Convolution(6, 3, padding=1),
         Convolution(6, 1, stride=2), Add(), ReLU(), AveragePool((5, 4)), FullyConnected(3)),
        sources=((0,), (1,), (2,), (0,), (3, 4), (5,), (6,), (7,)),
    ),
    Network(
        "fire", Pixels((3, 6, 5)),
        (Convolution(4, 1), ReLU(), Convolution(5, 1), ReLU(), Convolution(6, 3, padding=1),
         ReLU(), Concat(), MaxPool(2), Add(), Convolution(3, 2)),
        sources=((0,), (1,), (2,), (3,), (2,), (5,), (4, 6), (7,), (8, 8), (9,)),
    ),
    Network(
        "nested", Pixels((2, 5, 5)),
        (Convolution(4, 3, padding=1), Convolution(4, 1), Convolution(4, 3, padding=1), Add(),
         Add(), Concat(), Flatten(), FullyConnected(5)),
        sources=((0,), (1,), (2,), (3, 2), (1, 4, 2), (5, 0), (6,), (7,)),
    ),
    Network(
        "gated", Pixels((3, 6, 5)),
        (Convolution(5, 3, padding=1), ReLU(), AveragePool((6, 5)), FullyConnected(5), Multiply(),
         Convolution(1, 1), Multiply(), Add(), FullyConnected(4)),
        sources=((0,), (1,), (2,), (3,), (2, 4), (5,), (5, 6), (7, 2), (8,)),
    ),
)  # fmt: skip


def pooled(generator: Generator) -> Iterator[Network]:
    """A convolution, an activation and a maximum, for activations that are not in the others: where
    they are computed together, a maximum may not always be taken first."""
    met = {type(layer) for network in SEQUENCES for layer in network.layers}
    for shape, layer in single(generator):
        if isinstance(layer, Elementwise) and type(layer) not in met:
            yield Network("layers", Pixels(shape), (Convolution(4, 2), layer, MaxPool(2)))


def single(generator: Generator) -> list[tuple[Shape, Layer]]:
    """What every kind of layer has as examples, and then what it draws."""

    def draw(low: int, high: int) -> int:
        return int(generator.integers(low, high + 1))

    found = [example for kind in TYPES.values() for example in kind.examples()]
    return found + [example for kind in TYPES.values() for example in kind.drawn(draw)]


def alone(shape: Shape, layer: Layer) -> Network:
    """A layer as a network of its own."""
    layers: tuple[Layer, ...] = (layer,) if len(shape) == 3 else (Flatten(), layer)
    return Network("layer", Pixels((*shape, 1, 1)[:3]), layers)


def joins(kind: type[Layer]) -> list[tuple[tuple[Shape, ...], Join]]:
    """What a kind of layer has as examples, if it takes several."""
    return kind.joins() if issubclass(kind, Join) else []


def joined(shapes: tuple[Shape, ...], join: Join) -> Network:
    """A layer that takes several, each made of the input by a convolution or its like."""
    pixels = Pixels((2, *shapes[0][1:]) if len(shapes[0]) == 3 else (7, 1, 1))
    _, height, width = pixels.shape
    makes: list[Layer] = [
        # Windows of one pixel, or those that leave the size that is wanted.
        Convolution(shape[0], (height - shape[1] + 1, width - shape[2] + 1))
        if len(shape) == 3
        else FullyConnected(shape[0])
        for shape in shapes
    ]
    sources = (*((0,) for _ in makes), tuple(range(1, len(makes) + 1)))
    return Network("join", pixels, (*makes, join), sources=sources)
