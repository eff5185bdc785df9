"""Networks that nobody chose: drawn at random, the same for the same number.

Whoever writes down networks to compare with writes down what he thought of. These have pictures,
filters, windows, activations, poolings, residual blocks and ends as they come, with dice that are
loaded towards what people use: `drawn-17` is a network of `benchmarks.builds`. What has next to
nothing to compute, or more than 0.2 GFLOP an image, is thrown once more.

    python -m benchmarks.drawn 0 1 2        # what they are
"""

from __future__ import annotations

import random
import sys

from benchmarks.strangers import Graph

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    ELU,
    Add,
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    LeakyReLU,
    MaxPool,
    Pixels,
    ReLU,
    SiLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network

PICTURES = (
    *((1, 28, 28),) * 3, *((3, 32, 32),) * 4, (1, 32, 32), (3, 48, 48), (3, 64, 64), (1, 64, 64),
    (3, 96, 96), (1, 40, 100), (4, 84, 84), (3, 24, 24), (1, 20, 20), (3, 40, 56), (2, 50, 50),
)  # fmt: skip
FILTERS = (6, 8, 10, 12, 16, 16, 20, 24, 32, 32, 32, 40, 48, 64, 64, 96)
ACTIVATIONS = (*(ReLU,) * 6, Tanh, LeakyReLU, ELU, SiLU)
INNER = (32, 64, 84, 100, 120, 128, 200, 256, 300, 500, 512, 800, 1024)
CLASSES = (2, 4, 7, 10, 10, 10, 26, 43, 100)
KINDS = ("plain", "plain", "plain", "residual", "by depth", "perceptron")
COUNT = 100  # of those that other benchmarks know by name
LEAST, MOST = 200_000, 200_000_000  # FLOP an image


def every_drawn() -> list[Network]:
    return [drawn(number) for number in range(COUNT)]


def drawn(number: int) -> Network:
    dice = random.Random(number)
    while True:
        try:
            network = _Thrown(dice).network(f"drawn-{number}")
        except TilewrightError:  # a window that is larger than what is left of the picture
            continue
        if LEAST <= network.flops <= MOST:
            return network


class _Thrown:
    """A network that grows layer by layer; `last` and `shape` are of what it gives so far."""

    def __init__(self, dice: random.Random) -> None:
        self.dice, self.graph = dice, Graph()
        self.pixels = Pixels(dice.choice(PICTURES))
        self.activation = dice.choice(ACTIVATIONS)
        self.last, self.shape = 0, self.pixels.shape

    def network(self, name: str) -> Network:
        kind = self.dice.choice(KINDS)
        if kind != "perceptron":
            self._convolutions(kind)
        if kind == "perceptron":
            self._end([self.dice.choice(INNER) for _ in range(self.dice.randint(1, 4))])
        elif self.dice.random() < 0.4:
            self._put(AveragePool(self.shape[1:]))
            self._end([])
        else:
            self._end([self.dice.choice(INNER) for _ in range(self.dice.randint(0, 1))])
        layers, sources = tuple(self.graph.layers), tuple(self.graph.sources)
        return Network(name, self.pixels, layers, sources=sources)

    def _convolutions(self, kind: str) -> None:
        filters = self.dice.choice(FILTERS)
        for stage in range(self.dice.randint(2, 4)):
            for block in range(self.dice.randint(1, 3)):
                stride = 2 if kind != "plain" and stage and not block else 1
                if kind == "residual" and (stage or block):
                    self._residual(filters, stride)
                elif kind == "by depth" and (stage or block):
                    channels = self.shape[0]
                    self._active(
                        Convolution(channels, 3, stride=stride, padding=1, groups=channels)
                    )
                    self._active(Convolution(filters, 1))
                elif kind == "plain":
                    kernel = self.dice.choice((1, 3, 3, 3, 3, 5, 5, 7))
                    padding = self.dice.choice((kernel // 2, kernel // 2, 0))
                    self._active(Convolution(filters, kernel, padding=padding))
                else:
                    self._active(Convolution(filters, 3, padding=1))
            if kind == "plain":
                pools = (*(MaxPool(2),) * 3, MaxPool(3, stride=2), AveragePool(2))
                self._put(self.dice.choice(pools))
            filters = self.dice.choice((filters, 2 * filters, 2 * filters, filters * 3 // 2))

    def _residual(self, filters: int, stride: int) -> None:
        before, given = self.last, self.shape[0]
        self._active(Convolution(filters, 3, stride=stride, padding=1))
        self._put(Convolution(filters, 3, padding=1))
        if stride > 1 or given != filters:
            before = self.graph.add(Convolution(filters, 1, stride=stride), before)
        self.last = self.graph.add(self.activation(), self.graph.add(Add(), self.last, before))

    def _active(self, layer: Layer) -> None:
        self._put(layer)
        self._put(self.activation())

    def _put(self, layer: Layer) -> None:
        self.shape = layer.output_shape(self.shape)
        self.last = self.graph.add(layer, self.last)

    def _end(self, inner: list[int]) -> None:
        self._put(Flatten())
        for outputs in inner:
            self._active(FullyConnected(outputs))
        self._put(FullyConnected(self.dice.choice(CLASSES)))
        self._put(Softmax())


def in_words(network: Network) -> str:
    shape = "x".join(str(size) for size in network.input.shape)
    layers = " ".join(word for word in map(_word, network.layers) if word)
    return f"{network.name}: {shape}, {network.flops / 1e6:.1f} MFLOP: {layers}"


def _word(layer: Layer) -> str:
    if isinstance(layer, Convolution):
        stride = f"/{layer.stride[0]}" if layer.stride[0] > 1 else ""
        own = " each" if layer.groups > 1 else ""
        inside = "" if any(layer.padding) else " inside"
        return f"{layer.filters}@{layer.kernel[0]}{stride}{own}{inside}"
    if isinstance(layer, FullyConnected):
        return f"fc {layer.outputs}"
    return "" if isinstance(layer, Flatten | Softmax) else type(layer).__name__


if __name__ == "__main__":
    for number in map(int, sys.argv[1:]):
        print(in_words(drawn(number)))
