"""Layers into operations, and what happens to layers that are none."""

from __future__ import annotations

import pytest

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.operations import operations
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    Layer,
    MaxPool,
    Pixels,
    Pooling,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import MOST_LAYERS, Network


class Sigmoid(Layer):
    kind = "sigmoid"


class Grouped(Convolution):
    kind = "grouped"


class MedianPool(Pooling):
    pass


class Attention(Layer):
    kind = "conv"


@pytest.mark.parametrize(
    "layers, words",
    [
        ((Sigmoid(),), r"^sigmoid: .* kind 'sigmoid' \(Sigmoid\) have no CUDA form"),
        (
            (Convolution(2, 3), Sigmoid(), ReLU()),
            r"^sigmoid: .* kind 'sigmoid' \(Sigmoid\) have no CUDA form",
        ),
        ((Grouped(2, 3), ReLU()), r"^grouped: .* kind 'grouped' \(Grouped\) have no CUDA form"),
        ((MedianPool(2),), r"^pool: .* kind 'pool' \(MedianPool\) have no CUDA form"),
        (
            (Convolution(2, 3), MedianPool(2)),
            r"^pool: .* kind 'pool' \(MedianPool\) have no CUDA form",
        ),
        ((Attention(),), r"^conv: .* kind 'conv' \(Attention\) have no CUDA form"),
    ],
)
def test_a_layer_of_another_kind_is_named(layers: tuple[Layer, ...], words: str) -> None:
    with pytest.raises(TilewrightError, match=words):
        operations(Network("odd", Pixels((1, 8, 8)), layers).stages)


def test_layers_are_taken_together() -> None:
    layers = (
        Convolution(2, 3), ReLU(), MaxPool(2), Tanh(), AveragePool(2, stride=1), ReLU(), Flatten(),
        Softmax(),
    )  # fmt: skip
    found = operations(Network("net", Pixels((1, 8, 8)), layers).stages)
    assert [(each.kind, each.names) for each in found] == [
        ("sum", ("conv", "relu1", "pool1", "tanh")),
        ("each", ("pool2", "relu2")),
        ("softmax", ("softmax",)),
    ]


def test_time_is_linear_in_layers() -> None:
    """As many as a network may have take no time to speak of."""
    layers = (Convolution(1, 1), ReLU()) * (MOST_LAYERS // 2)
    stages = Network("deep", Pixels((1, 1, 1)), layers).stages
    assert len(operations(stages)) == MOST_LAYERS // 2
