"""Layers into operations, and what happens to layers that are none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import interpret
from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.operations import operations
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    Pooling,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import MOST_LAYERS, Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters


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


@pytest.mark.parametrize("precision", ["fp16", "tf32", "tf32x3", "fp32"])
@pytest.mark.parametrize("channels", [1, 2])
def test_rows_of_pixels_are_channels_where_windows_see_all_of_them(
    channels: int, precision: str
) -> None:
    layers = (
        Convolution(12, (9, 3), stride=(1, 2), padding=(0, 1)), Tanh(), Convolution(8, (1, 2)),
        Flatten(), Softmax(),
    )  # fmt: skip
    made = Network("tall", Pixels((channels, 9, 14)), layers)
    first = operations(made.stages)[0]
    assert (first.source, first.window.taps) == ((9 * channels, 1, 14), (1, 3))
    network = made.with_parameters(random_parameters(made, np.random.default_rng(0)))
    images = np.random.default_rng(1).integers(0, 256, (3, channels, 9, 14), np.uint8)
    arithmetic = ARITHMETICS[precision]
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    kernels = cut(network.stages, arithmetic, 90)
    assert compare(interpret(kernels, network, images), truth)[1] is None


@pytest.mark.parametrize(
    "pixels, first",
    [
        (Pixels((2, 9, 14)), Convolution(12, (8, 3))),
        (Pixels((2, 9, 14)), Convolution(12, (9, 3), padding=(1, 0, 1, 0))),
        (Pixels((2, 9, 14)), Convolution(12, (9, 3), groups=2)),
        (Pixels((2, 9, 14)), Convolution(12, (5, 3), dilation=(2, 1))),
        (Pixels((2, 1, 14)), Convolution(12, (1, 3))),
        (Pixels((2, 9, 14), scale=(0.1, 0.2)), Convolution(12, (9, 3))),
        (Pixels((2, 9, 14)), Flatten()),
    ],
    ids=["lower", "padded", "groups", "apart", "one row", "scaled by channel", "no convolution"],
)
def test_elsewhere_they_stay_rows(pixels: Pixels, first: Layer) -> None:
    layers = (first, FullyConnected(3)) if isinstance(first, Flatten) else (first, ReLU())
    found = operations(Network("net", pixels, layers).stages)[0]
    assert found.source == pixels.shape


def test_pixels_that_others_read_stay_as_they_are() -> None:
    layers = Convolution(4, (9, 1)), Convolution(4, (9, 1)), Tanh(), Add()
    made = Network("net", Pixels((2, 9, 14)), layers, sources=((0,), (0,), (2,), (1, 3)))
    found = [each.source for each in operations(made.stages) if -1 in each.takes]
    assert found == [(2, 9, 14), (2, 9, 14)]


def test_time_is_linear_in_layers() -> None:
    """As many as a network may have take no time to speak of."""
    layers = (Convolution(1, 1), ReLU()) * (MOST_LAYERS // 2)
    stages = Network("deep", Pixels((1, 1, 1)), layers).stages
    assert len(operations(stages)) == MOST_LAYERS // 2
