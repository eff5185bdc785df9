"""Tiles of a layer: what is found for one that is like it is the best for itself."""

from __future__ import annotations

import pytest

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import for_few
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.tiles import all_tiles, can_spread
from tilewright.fuse.cuda.tiles_choice import best_tiles, tiles_cycles
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network

GPU = for_few(HOPPER)
# Two that are alike, one that is pooled, and one with softmax.
NETWORK = Network("some", Pixels((3, 16, 16)), (
    Convolution(16, 3, padding=1), ReLU(), Convolution(16, 3, padding=1), ReLU(),
    Convolution(16, 3, padding=1), ReLU(), Convolution(24, 3), ReLU(), MaxPool(2), Flatten(),
    FullyConnected(10), Softmax(),
))  # fmt: skip


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("images", [1, 64])
def test_the_best_is_the_best_of_all_plans_of_the_layer_itself(precision: str, images: int) -> None:
    todo, arithmetic = to_do(NETWORK.stages, GPU), ARITHMETICS[precision]
    *layers, connected, softmax = todo
    for part in (*((each,) for each in layers), (connected, softmax)):
        assert can_spread(part)
        plans = all_tiles(arithmetic, part, GPU)
        best = min(plans, key=lambda plan: tiles_cycles(plan, images, GPU))
        assert best_tiles(arithmetic, part, GPU, images) == best
