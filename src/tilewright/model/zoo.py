"""The networks Tilewright knows by name."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import unknown
from tilewright.model.layers import (
    Add,
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


def cifar10() -> Network:
    """The thesis's network: three 5x5 convolutions over CIFAR-10 (ConvNetJS's demo)."""
    return Network(
        "cifar10",
        Pixels((3, 32, 32)),
        (
            *(Convolution(16, 5, padding=2), ReLU(), MaxPool(2)),
            *(Convolution(20, 5, padding=2), ReLU(), MaxPool(2)),
            *(Convolution(20, 5, padding=2), ReLU(), MaxPool(2)),
            *(FullyConnected(10), Softmax()),
        ),
    )


def ece408() -> Network:
    """The course's network of 2019: two 7x7 convolutions over Fashion-MNIST at 70x70."""
    return Network(
        "ece408",
        Pixels((1, 70, 70)),
        (
            *(Convolution(12, 7, bias=False), Tanh(), MaxPool(2)),
            *(Convolution(24, 7, bias=False), Flatten()),
            *(FullyConnected(160), Tanh(), FullyConnected(10), Softmax()),
        ),
    )


def ece408_2017() -> Network:
    """The course's network of 2017: one 5x5 convolution over Fashion-MNIST at 28x28."""
    return Network(
        "ece408-2017",
        Pixels((1, 28, 28)),
        (
            *(Convolution(50, 5, bias=False), Tanh(), MaxPool(2)),
            *(FullyConnected(500), Tanh(), FullyConnected(10), Softmax()),
        ),
    )


def resnet8() -> Network:
    """MLPerf Tiny's ResNet for CIFAR-10: three residual blocks of 16, 32 and 64 channels.

    Batch norms are folded into the convolutions.
    """
    layers: list[Layer] = [Convolution(16, 3, padding=1), ReLU()]
    sources: list[tuple[int, ...]] = [(0,), (1,)]

    def add(layer: Layer, *taken: int) -> int:
        layers.append(layer)
        sources.append(taken)
        return len(layers)

    last = 2
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        first = add(Convolution(filters, 3, stride=stride, padding=_same(stride)), last)
        second = add(Convolution(filters, 3, padding=1), add(ReLU(), first))
        beside = last if stride == 1 else add(Convolution(filters, 1, stride=stride), last)
        last = add(ReLU(), add(Add(), second, beside))
    last = add(AveragePool(8), last)
    add(Softmax(), add(FullyConnected(10), last))
    return Network("resnet8", Pixels((3, 32, 32)), tuple(layers), sources=tuple(sources))


def _same(stride: int) -> tuple[int, int, int, int]:
    """The padding of TensorFlow's "same" for 3x3 windows over an even side."""
    return (1, 1, 1, 1) if stride == 1 else (0, 0, 1, 1)


ZOO: dict[str, Callable[[], Network]] = {
    "cifar10": cifar10,
    "ece408": ece408,
    "ece408-2017": ece408_2017,
    "resnet8": resnet8,
}


def network(name: str) -> Network:
    """The zoo's network of that name, without parameters."""
    if name not in ZOO:
        raise unknown("network", name, ZOO)
    return ZOO[name]()


def holds(network: Network) -> bool:
    """Whether a network is the zoo's, and not another of the same name."""
    if network.name not in ZOO:
        return False
    own = ZOO[network.name]()
    return (own.input, own.layers, own.sources) == (
        network.input, network.layers, network.sources,
    )  # fmt: skip
