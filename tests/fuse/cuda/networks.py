"""Networks that tests draw: every kind of layer, small, in any order that shapes allow."""

from __future__ import annotations

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


@st.composite
def small_networks(draw: st.DrawFn) -> Network:
    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    shape = (number(1, 5), number(3, 14), number(3, 14))
    layers: list[Layer] = []
    for _ in range(number(1, 3)):
        kernel = (number(1, 5), number(1, 5))
        layers.append(
            Convolution(
                number(1, 20),
                kernel,
                stride=(number(1, 2), number(1, 2)),
                padding=(number(0, 2), number(0, 2)),
                bias=draw(st.booleans()),
            )
        )
        layers += draw(st.lists(st.sampled_from([ReLU(), Tanh()]), max_size=1))
        if draw(st.booleans()):
            pool = draw(st.sampled_from([MaxPool, AveragePool]))
            layers.append(pool(number(1, 3), stride=number(1, 2)) if number(0, 1) else pool(2))
    if draw(st.booleans()):
        layers += [Flatten()] * number(0, 1)
        layers += [FullyConnected(number(1, 30), bias=draw(st.booleans()))]
        layers += draw(st.sampled_from([[], [ReLU()], [Tanh(), FullyConnected(7)], [Softmax()]]))
    # What windows do not fit into any more is left out.
    while layers:
        try:
            return Network("drawn", Pixels(shape, 1 / 255, -0.5), tuple(layers))
        except TilewrightError:
            layers.pop()
    return Network("drawn", Pixels(shape), (ReLU(),))
