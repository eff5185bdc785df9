"""Networks that no constant was fitted to, of many kinds, for `benchmarks.few --networks`.

They are what people bring: wide and narrow, deep and shallow, large kernels and 1x1, large pictures
and small ones, one image after the other by depth, and perceptrons.
"""

from __future__ import annotations

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
)
from tilewright.model.network import Network


def _convolutions(*filters: int, kernel: int = 3) -> tuple[Layer, ...]:
    """With ReLU after each, and pictures that stay as large as they were."""
    return tuple(
        layer
        for count in filters
        for layer in (Convolution(count, kernel, padding=kernel // 2), ReLU())
    )


def _connected(*outputs: int) -> tuple[Layer, ...]:
    """The end of a network, with ReLU between its layers."""
    *inner, last = outputs
    layers = (layer for count in inner for layer in (FullyConnected(count), ReLU()))
    return (Flatten(), *layers, FullyConnected(last), Softmax())


def _by_depth(channels: int, filters: int, stride: int) -> tuple[Layer, ...]:
    """A convolution of each channel for itself, then one of 1x1 over all of them."""
    own = Convolution(channels, 3, padding=1, stride=stride, groups=channels)
    return (own, ReLU(), Convolution(filters, 1), ReLU())


def strangers() -> list[Network]:
    pool, colour, grey = MaxPool(2), Pixels((3, 32, 32)), Pixels((1, 28, 28))
    return [
        Network("caffe-lenet", grey, (
            Convolution(20, 5), pool, Convolution(50, 5), pool, *_connected(500, 10))),
        Network("small", grey, (
            *_convolutions(8), pool, *_convolutions(16), pool, *_connected(10))),
        Network("vgg", colour, (
            *_convolutions(64, 64), pool, *_convolutions(128, 128), pool,
            *_convolutions(256, 256), pool, *_connected(512, 10))),
        Network("alexnet", colour, (
            *_convolutions(64, 192, kernel=5), pool, *_convolutions(384, 256), pool,
            *_convolutions(256), pool, *_connected(1024, 512, 10))),
        Network("network-in-network", colour, (
            *_convolutions(192, kernel=5), *_convolutions(160, 96, kernel=1), pool,
            *_convolutions(192, kernel=5), *_convolutions(192, 192, kernel=1), pool,
            *_convolutions(192), *_convolutions(192, 10, kernel=1), AveragePool(8), Flatten(),
            Softmax())),
        Network("deep", colour, (*_convolutions(*[16] * 12), pool, *_connected(10))),
        Network("large-pictures", Pixels((3, 96, 96)), (
            Convolution(24, 7, stride=2, padding=3), ReLU(), pool, *_convolutions(48), pool,
            *_convolutions(96), pool, *_connected(64, 10))),
        Network("by-depth", colour, (
            *_convolutions(32), *_by_depth(32, 64, 1), *_by_depth(64, 128, 2),
            *_by_depth(128, 128, 2), AveragePool(8), *_connected(10))),
        Network("wide-perceptron", colour, _connected(2048, 2048, 10)),
        Network("small-perceptron", grey, _connected(64, 10)),
    ]  # fmt: skip
