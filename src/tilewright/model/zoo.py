"""The networks Tilewright knows by name."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import unknown
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
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


ZOO: dict[str, Callable[[], Network]] = {
    "cifar10": cifar10,
    "ece408": ece408,
    "ece408-2017": ece408_2017,
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
    return (own.input, own.layers) == (network.input, network.layers)
