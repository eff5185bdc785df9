"""Graphs with whatever the fused kernel has a special place for."""

from __future__ import annotations

from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
)
from tilewright.model.network import Network

COLOURS = (1 / 255, 1 / 128, 0.5), (-0.5, 0.25, 1.0)

BRANCHES = {
    network.name: network
    for network in (
        # A picture and a row of features lie in different orders where lanes are channels.
        Network("flattened and added", Pixels((3, 4, 5), *COLOURS),
                (Convolution(2, 3, padding=1), Flatten(), FullyConnected(40), Add(), ReLU()),
                sources=((0,), (1,), (0,), (2, 3), (4,))),
        Network("flattened and put behind", Pixels((3, 4, 5)),
                (Convolution(5, 2), Flatten(), FullyConnected(7), Concat()),
                sources=((0,), (1,), (0,), (3, 2))),
        # What is made for one vector of images is read when several have come together.
        Network("gathered", Pixels((3, 12, 12)),
                (Convolution(8, 3, padding=1), MaxPool(5), FullyConnected(40), ReLU(),
                 FullyConnected(40), Add(), FullyConnected(3)),
                sources=((0,), (1,), (1,), (3,), (2,), (5, 4, 5), (6,))),
        Network("a filter a channel", Pixels((3, 9, 8)),
                (Convolution(19, 1), Convolution(19, 3, groups=19, padding=(2, 1, 0, 3)), ReLU(),
                 Convolution(19, (3, 2), dilation=2, groups=19, padding=2), Convolution(2, 1)),
                sources=((0,), (1,), (2,), (3,), (4,))),
        Network("groups", Pixels((4, 6, 5)),
                (Convolution(20, 3, groups=2, padding=(0, 2, 1, 1)), ReLU(),
                 Convolution(20, 2, groups=5, padding=(1, 0, 0, 1)), Add(), ReLU(), MaxPool(2),
                 Convolution(38, 2, groups=2)),
                sources=((0,), (1,), (2,), (3, 2), (4,), (5,), (6,))),
        Network("the picture itself", Pixels((3, 5, 4), *COLOURS),
                (Convolution(3, 3, groups=3, padding=1), Convolution(3, 1), Add(), Concat()),
                sources=((0,), (0,), (2, 0, 1), (0, 3))),
        Network("windows over the edges", Pixels((3, 8, 7)),
                (AveragePool(3, stride=2, padding=1, count_padding=True),
                 AveragePool(3, stride=2, padding=1),
                 AveragePool((4, 15), stride=2, padding=(1, 8, 1, 6)),
                 MaxPool(3, stride=2, padding=(1, 1, 0, 0), ceil=True), Add(), Concat(),
                 FullyConnected(9)),
                sources=((0,), (0,), (0,), (0,), (1, 3), (2, 5, 4), (6,))),
    )
}  # fmt: skip
