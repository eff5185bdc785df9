"""Networks that no constant was fitted to, of many kinds, for `benchmarks.cuda --networks`.

They are what people bring: wide and narrow, deep and shallow, large kernels and 1x1, large pictures
and small ones, one image after the other by depth, and perceptrons; what frameworks and papers
showed first, and what is not a photograph: frames of a game, boards, sounds.
"""

from __future__ import annotations

from tilewright.model.layers import (
    ELU,
    GELU,
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    LeakyReLU,
    MaxPool,
    Multiply,
    Pixels,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
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


class Graph:
    """Layers that name what they take: the pixels are 0, the first layer gives 1."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []
        self.sources: list[tuple[int, ...]] = []

    def add(self, layer: Layer, *taken: int) -> int:
        self.layers.append(layer)
        self.sources.append(taken)
        return len(self.layers)

    def convolved(self, taken: int, filters: int, kernel: int = 3, stride: int = 1) -> int:
        layer = Convolution(filters, kernel, stride=stride, padding=kernel // 2)
        return self.add(ReLU(), self.add(layer, taken))

    def ended(self, name: str, pixels: Pixels, taken: int, side: int = 8) -> Network:
        """With the mean of each channel, ten scores of these, and their probabilities."""
        self.add(Softmax(), self.add(FullyConnected(10), self.add(AveragePool(side), taken)))
        return Network(name, pixels, tuple(self.layers), sources=tuple(self.sources))


def _residual(name: str, widths: tuple[int, ...], blocks: int) -> Network:
    """He and others' ResNet for CIFAR-10 (2015), batch norms folded into the convolutions."""
    graph = Graph()
    last = graph.convolved(0, widths[0])
    for number, filters in enumerate(widths):
        for block in range(blocks):
            stride = 2 if number and not block else 1
            inner = graph.convolved(last, filters, stride=stride)
            sums = graph.add(Convolution(filters, 3, padding=1), inner)
            if stride == 2:
                last = graph.add(Convolution(filters, 1, stride=2), last)
            last = graph.add(ReLU(), graph.add(Add(), sums, last))
    return graph.ended(name, Pixels((3, 32, 32)), last, 64 >> len(widths))


def _fire() -> Network:
    """Squeezed by 1x1, then 1x1 beside 3x3: SqueezeNet's modules (2016)."""
    graph = Graph()
    last = graph.convolved(0, 64)
    for squeezed, expanded, pooled in ((16, 64, True), (32, 128, True), (48, 192, False)):
        narrow = graph.convolved(last, squeezed, 1)
        one, three = graph.convolved(narrow, expanded, 1), graph.convolved(narrow, expanded, 3)
        last = graph.add(Concat(), one, three)
        last = graph.add(MaxPool(2), last) if pooled else last
    return graph.ended("fire", Pixels((3, 32, 32)), last)


def _inception() -> Network:
    """Four ways beside each other, three of them through 1x1 first: GoogLeNet's modules (2014)."""
    graph = Graph()
    last = graph.add(MaxPool(2), graph.convolved(0, 64))
    for one, three, five, pooled in ((32, 64, 16, 16), (64, 96, 32, 32)):
        ways = [
            graph.convolved(last, one, 1),
            graph.convolved(graph.convolved(last, three // 2, 1), three),
            graph.convolved(graph.convolved(last, five // 2, 1), five, 5),
            graph.convolved(graph.add(MaxPool(3, stride=1, padding=1), last), pooled, 1),
        ]
        last = graph.add(Concat(), *ways)
    return graph.ended("inception", Pixels((3, 32, 32)), graph.add(MaxPool(2), last))


def _dense() -> Network:
    """All that was before, and 24 channels more, layer by layer: DenseNet's blocks (2016)."""
    graph = Graph()
    last = graph.convolved(0, 48)
    for number in range(2):
        for _ in range(4):
            last = graph.add(Concat(), last, graph.convolved(last, 24))
        last = graph.add(AveragePool(2), graph.convolved(last, 72, 1)) if not number else last
    return graph.ended("dense", Pixels((3, 32, 32)), graph.add(MaxPool(2), last))


def _inverted() -> Network:
    """Widened by 1x1, each channel for itself, narrowed, and added: MobileNetV2's blocks (2018)."""
    graph = Graph()
    last, channels = graph.convolved(0, 16, stride=2), 16
    for filters, stride in ((24, 1), (24, 1), (32, 2), (32, 1)):
        wide = graph.add(ReLU(), graph.add(Convolution(6 * channels, 1), last))
        own = Convolution(6 * channels, 3, padding=1, stride=stride, groups=6 * channels)
        narrow = graph.add(Convolution(filters, 1), graph.add(ReLU(), graph.add(own, wide)))
        last = graph.add(Add(), narrow, last) if (filters, stride) == (channels, 1) else narrow
        channels = filters
    return graph.ended("inverted", Pixels((3, 32, 32)), last)


def _board() -> Network:
    """Residual blocks of 64 channels over 17 planes of 8x8: chess, as AlphaZero plays it (2017)."""
    graph = Graph()
    last = graph.convolved(0, 64)
    for _ in range(4):
        sums = graph.add(Convolution(64, 3, padding=1), graph.convolved(last, 64))
        last = graph.add(ReLU(), graph.add(Add(), sums, last))
    return graph.ended("board", Pixels((17, 8, 8)), last)


def _mixer() -> Network:
    """Patches of 4x4, then channels for themselves, added, and 1x1: ConvMixer's blocks (2022)."""
    graph = Graph()
    last = graph.add(GELU(), graph.add(Convolution(128, 4, stride=4), 0))
    for _ in range(4):
        own = graph.add(GELU(), graph.add(Convolution(128, 5, padding=2, groups=128), last))
        last = graph.add(GELU(), graph.add(Convolution(128, 1), graph.add(Add(), own, last)))
    return graph.ended("mixer", Pixels((3, 32, 32)), last)


def _aggregated() -> Network:
    """Convolutions in eight groups between two of 1x1: ResNeXt's blocks (2016)."""
    graph = Graph()
    last = graph.convolved(0, 64)
    for stride in (1, 2, 2):
        inner = graph.convolved(last, 64, 1)
        grouped = Convolution(64, 3, stride=stride, padding=1, groups=8)
        sums = graph.add(Convolution(128, 1), graph.add(ReLU(), graph.add(grouped, inner)))
        beside = graph.add(Convolution(128, 1, stride=stride), last)
        last = graph.add(ReLU(), graph.add(Add(), sums, beside))
    return graph.ended("aggregated", Pixels((3, 32, 32)), last)


def _squeezed() -> Network:
    """Widened, each channel for itself, weighed by the mean of each, narrowed: MobileNetV3's and
    EfficientNet's blocks (2019)."""
    graph = Graph()
    last, channels, side = graph.add(SiLU(), graph.add(Convolution(16, 3, padding=1), 0)), 16, 32
    for filters, kernel, stride in ((24, 3, 2), (24, 3, 1), (40, 5, 2), (40, 5, 1)):
        wide, side = 4 * channels, side // stride
        inner = graph.add(SiLU(), graph.add(Convolution(wide, 1), last))
        own = Convolution(wide, kernel, padding=kernel // 2, stride=stride, groups=wide)
        inner = graph.add(SiLU(), graph.add(own, inner))
        mean = graph.add(AveragePool(side), inner)
        few = graph.add(SiLU(), graph.add(Convolution(wide // 8, 1), mean))
        gate = graph.add(Sigmoid(), graph.add(Convolution(wide, 1), few))
        narrow = graph.add(Convolution(filters, 1), graph.add(Multiply(), inner, gate))
        last = graph.add(Add(), narrow, last) if filters == channels else narrow
        channels = filters
    return graph.ended("squeezed", Pixels((3, 32, 32)), last)


def _heartbeat() -> Network:
    """Residual blocks along one axis: the beats of Kachuee and others' heart (2018)."""
    graph = Graph()
    last = graph.add(Convolution(32, (1, 5)), 0)
    for _ in range(5):
        inner = graph.add(ReLU(), graph.add(Convolution(32, (1, 5), padding=(0, 2)), last))
        sums = graph.add(Add(), graph.add(Convolution(32, (1, 5), padding=(0, 2)), inner), last)
        last = graph.add(MaxPool((1, 5), stride=(1, 2)), graph.add(ReLU(), sums))
    last = graph.add(ReLU(), graph.add(FullyConnected(32), graph.add(Flatten(), last)))
    graph.add(Softmax(), graph.add(FullyConnected(5), last))
    return Network(
        "heartbeat", Pixels((1, 1, 187)), tuple(graph.layers), sources=tuple(graph.sources)
    )


def _latest() -> list[Network]:
    """Those that came on 2026-11-19, when the others had been fitted to."""
    pool, wide, pixels = MaxPool(2), MaxPool(3, stride=2), Pixels((3, 32, 32))
    return [
        Network("vgg16", pixels, (
            *_convolutions(64, 64), pool, *_convolutions(128, 128), pool,
            *_convolutions(256, 256, 256), pool, *_convolutions(512, 512, 512), pool,
            *_convolutions(512, 512, 512), pool, *_connected(512, 10))),
        _residual("resnet18", (64, 128, 256, 512), 2),
        Network("tiny-imagenet", Pixels((3, 64, 64)), (
            Convolution(64, 7, stride=2, padding=3), ReLU(), MaxPool(3, stride=2, padding=1),
            *_convolutions(128, kernel=5), pool, *_convolutions(256, 256), pool,
            *_connected(512, 200))),
        Network("leaky", Pixels((3, 64, 64)), (
            *(layer for count in (16, 32, 64, 128)
              for layer in (Convolution(count, 3, padding=1), LeakyReLU(), pool)),
            Convolution(256, 3, padding=1), LeakyReLU(), Convolution(20, 1), AveragePool(4),
            Flatten(), Softmax())),
        _heartbeat(), _squeezed(),
        Network("primes", Pixels((3, 37, 29)), (
            Convolution(17, 3), ReLU(), wide, Convolution(37, 5, padding=1), ReLU(), wide,
            Convolution(53, 3), Tanh(), *_connected(101, 11))),
        Network("narrow-perceptron", Pixels((1, 28, 28)), _connected(*[128] * 8, 10)),
        Network("spoken", Pixels((1, 98, 40)), (
            Convolution(64, (20, 8), padding=(9, 3)), ReLU(), pool,
            Convolution(64, (10, 4), padding=(4, 1)), ReLU(), *_connected(12))),
        Network("omniglot", Pixels((1, 105, 105)), (
            Convolution(64, 10), ReLU(), pool, Convolution(128, 7), ReLU(), pool,
            Convolution(128, 4), ReLU(), pool, Convolution(256, 4), ReLU(), Flatten(),
            FullyConnected(4096), Sigmoid(), FullyConnected(30), Softmax())),
        Network("steering", Pixels((3, 66, 200)), (
            *(layer for count in (24, 36, 48)
              for layer in (Convolution(count, 5, stride=2), ELU())),
            Convolution(64, 3), ELU(), Convolution(64, 3), ELU(), Flatten(),
            FullyConnected(100), ELU(), FullyConnected(50), ELU(), FullyConnected(10),
            Softmax())),
        Network("alexnet-2012", Pixels((3, 227, 227)), (
            Convolution(96, 11, stride=4), ReLU(), wide,
            Convolution(256, 5, padding=2, groups=2), ReLU(), wide, *_convolutions(384),
            Convolution(384, 3, padding=1, groups=2), ReLU(),
            Convolution(256, 3, padding=1, groups=2), ReLU(), wide,
            *_connected(4096, 4096, 1000))),
    ]  # fmt: skip


def _scaled() -> Network:
    """Each channel for itself by 7x7, widened, narrowed and added: ConvNeXt's blocks (2022)."""
    graph = Graph()
    last = graph.add(Convolution(48, 4, stride=4), 0)
    for filters in (48, 96, 192):
        if filters > 48:
            last = graph.add(Convolution(filters, 2, stride=2), last)
        for _ in range(2):
            inner = graph.add(Convolution(filters, 7, padding=3, groups=filters), last)
            inner = graph.add(GELU(), graph.add(Convolution(4 * filters, 1), inner))
            last = graph.add(Add(), graph.add(Convolution(filters, 1), inner), last)
    return graph.ended("scaled", Pixels((3, 64, 64)), last, 4)


def _bottlenecks() -> Network:
    """Narrowed, 3x3, widened and added: ResNet-50's blocks (2015), one of each kind."""
    graph = Graph()
    last = graph.convolved(0, 64, 7, stride=2)
    last = graph.add(MaxPool(3, stride=2, padding=1), last)
    for narrow, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        inner = graph.convolved(graph.convolved(last, narrow, 1), narrow, stride=stride)
        wide = graph.add(Convolution(4 * narrow, 1), inner)
        beside = graph.add(Convolution(4 * narrow, 1, stride=stride), last)
        last = graph.add(ReLU(), graph.add(Add(), wide, beside))
    return graph.ended("bottlenecks", Pixels((3, 96, 96)), last, 3)


def _emotions() -> Network:
    """Each channel for itself, then 1x1, twice, beside a 1x1: Arriaga and others' faces (2017)."""
    graph = Graph()
    last = graph.convolved(graph.convolved(0, 8), 8)
    for filters, given in ((16, 8), (32, 16), (64, 32), (128, 64)):
        beside = graph.add(Convolution(filters, 1, stride=2), last)
        own = graph.add(Convolution(given, 3, padding=1, groups=given), last)
        inner = graph.convolved(own, filters, 1)
        own = graph.add(Convolution(filters, 3, padding=1, groups=filters), inner)
        inner = graph.add(Convolution(filters, 1), own)
        pooled = graph.add(MaxPool(3, stride=2, padding=1), inner)
        last = graph.add(Add(), pooled, beside)
    last = graph.add(Convolution(7, 3, padding=1), last)
    graph.add(Softmax(), graph.add(Flatten(), graph.add(AveragePool(3), last)))
    return Network(
        "emotions", Pixels((1, 48, 48)), tuple(graph.layers), sources=tuple(graph.sources)
    )


def _newest() -> list[Network]:
    """Those that came in the evening of 2026-11-19, when those before had been timed."""
    pool = MaxPool(2)
    return [
        _scaled(), _bottlenecks(), _emotions(),
        # Dai and others' raw waveforms; Zhang and others' characters (2015), with fewer filters.
        Network("waveforms", Pixels((1, 1, 8000)), (
            Convolution(128, (1, 80), stride=(1, 4)), ReLU(), MaxPool((1, 4)),
            Convolution(128, (1, 3)), ReLU(), MaxPool((1, 4)),
            Convolution(256, (1, 3)), ReLU(), MaxPool((1, 4)),
            Convolution(512, (1, 3)), ReLU(), MaxPool((1, 4)), *_connected(10))),
        Network("characters", Pixels((1, 70, 256)), (
            Convolution(128, (70, 7)), ReLU(), MaxPool((1, 3)),
            Convolution(128, (1, 7)), ReLU(), MaxPool((1, 3)),
            Convolution(128, (1, 3)), ReLU(), Convolution(128, (1, 3)), ReLU(),
            *_connected(256, 4))),
        # Dieleman and others' galaxies; Goodfellow and others' house numbers, half as many layers.
        Network("galaxies", Pixels((3, 45, 45)), (
            Convolution(32, 6), ReLU(), pool, Convolution(64, 5), ReLU(), pool,
            Convolution(128, 3), ReLU(), Convolution(128, 3), ReLU(), pool,
            *_connected(1024, 37))),
        Network("street", Pixels((3, 54, 54)), (
            *_convolutions(48, kernel=5), pool, *_convolutions(64, kernel=5),
            MaxPool(2, stride=1, padding=(0, 0, 1, 1)), *_convolutions(128, kernel=5), pool,
            *_convolutions(160, 192, kernel=5), pool, *_connected(1024, 11))),
        Network("poses", Pixels((3, 46, 46)), (
            *_convolutions(64, kernel=9), pool, *_convolutions(64, 64, kernel=9), pool,
            *_convolutions(128, kernel=1), *_connected(14))),
        Network("perceptron-300", Pixels((1, 28, 28)), _connected(300, 100, 10)),
        Network("every-other", Pixels((3, 61, 83)), (
            *(layer for count, kernel in ((21, 5), (43, 3), (87, 3), (175, 3))
              for layer in (Convolution(count, kernel, stride=2, padding=1), SiLU())),
            *_connected(50, 6))),
    ]  # fmt: skip


def _ended_flat(graph: Graph, name: str, pixels: Pixels, taken: int, count: int) -> Network:
    """With so many scores of all that there is, and their probabilities."""
    graph.add(Softmax(), graph.add(FullyConnected(count), graph.add(Flatten(), taken)))
    return Network(name, pixels, tuple(graph.layers), sources=tuple(graph.sources))


def _go() -> Network:
    """19x19 points, 48 planes: Tian and Zhu's and AlphaGo's first layers (2016), then residual."""
    graph = Graph()
    last = graph.convolved(0, 128, 5)
    for _ in range(4):
        sums = graph.add(Convolution(128, 3, padding=1), graph.convolved(last, 128))
        last = graph.add(ReLU(), graph.add(Add(), sums, last))
    last = graph.convolved(last, 2, 1)
    return _ended_flat(graph, "go", Pixels((48, 19, 19)), last, 362)


def _temporal() -> Network:
    """Ever farther apart along one axis, and added: Bai and others' sequences (2018)."""
    graph, last, channels = Graph(), 0, 6
    for apart in (1, 2, 4, 8):
        inner = last
        for _ in range(2):
            spread = Convolution(64, (1, 5), padding=(0, 2 * apart), dilation=(1, apart))
            inner = graph.add(ReLU(), graph.add(spread, inner))
        beside = graph.add(Convolution(64, 1), last) if channels != 64 else last
        last, channels = graph.add(ReLU(), graph.add(Add(), inner, beside)), 64
    last = graph.add(AveragePool((1, 128)), last)
    return _ended_flat(graph, "temporal", Pixels((6, 1, 128)), last, 6)


def _factorised() -> Network:
    """1x7 behind 7x1 instead of 7x7, beside 1x1: Szegedy and others' Inception-v3 (2015)."""
    graph = Graph()
    last = graph.convolved(graph.convolved(0, 32, stride=2), 96)
    for _ in range(3):
        narrow = graph.convolved(last, 48, 1)
        for filters, kernel, padding in ((48, (1, 7), (0, 3)), (64, (7, 1), (3, 0))):
            layer = Convolution(filters, kernel, padding=padding)
            narrow = graph.add(ReLU(), graph.add(layer, narrow))
        pooled = graph.add(AveragePool(3, stride=1, padding=1), last)
        ways = graph.convolved(last, 64, 1), narrow, graph.convolved(pooled, 32, 1)
        last = graph.add(Concat(), *ways)
    return graph.ended("factorised", Pixels((3, 34, 34)), last, 17)


def _before() -> Network:
    """ReLU before convolutions instead of behind them: He and others' identities (2016)."""
    graph = Graph()
    last = graph.add(Convolution(32, 3, padding=1), 0)
    for filters, stride in ((32, 1), (64, 2), (128, 2)):
        first = graph.add(ReLU(), last)
        inner = graph.convolved(first, filters, stride=stride)
        beside = graph.add(Convolution(filters, 1, stride=stride), first) if stride > 1 else last
        last = graph.add(Add(), graph.add(Convolution(filters, 3, padding=1), inner), beside)
    return graph.ended("before", Pixels((3, 32, 32)), graph.add(ReLU(), last), 8)


def _ghosts() -> Network:
    """Half of the channels by 1x1, the others from these, each for itself: GhostNet (2020)."""
    graph = Graph()
    last, side = graph.convolved(0, 16), 32
    for filters, stride in ((32, 1), (48, 2), (80, 2)):
        few = graph.convolved(last, filters // 2, 1)
        own = Convolution(filters // 2, 3, padding=1, groups=filters // 2)
        last = graph.add(Concat(), few, graph.add(ReLU(), graph.add(own, few)))
        if stride > 1:
            apart = Convolution(filters, 3, padding=1, stride=stride, groups=filters)
            last, side = graph.add(apart, last), side // stride
    return graph.ended("ghosts", Pixels((3, 32, 32)), last, side)


def _unseen() -> list[Network]:
    """Those that came when the fifty before had been timed, late on 2026-11-19."""
    pool, wide = MaxPool(2), MaxPool(3, stride=2)
    return [
        _go(), _temporal(), _factorised(), _before(), _ghosts(),
        # Pixels of many colours, and what is around them: Chen and others' spectra (2016).
        Network("spectra", Pixels((200, 9, 9)), (
            *_convolutions(128, 64), *_connected(128, 16))),
        # Redmon and others' small detector (2016), of a quarter as many filters, up to its boxes.
        Network("detector", Pixels((3, 160, 160)), (
            *(layer for count in (8, 16, 32, 64, 128)
              for layer in (Convolution(count, 3, padding=1), LeakyReLU(), pool)),
            Convolution(256, 3, padding=1), LeakyReLU(), Convolution(30, 1), Flatten())),
        # Perol and others' earthquakes (2018); Lawhern and others' brain waves (2018).
        Network("earthquakes", Pixels((3, 1, 1001)), (
            *(layer for _ in range(8)
              for layer in (Convolution(32, (1, 3), stride=(1, 2), padding=(0, 1)), ReLU())),
            *_connected(7))),
        Network("brain-waves", Pixels((1, 22, 256)), (
            Convolution(8, (1, 64), padding=(0, 32)), Convolution(16, (22, 1), groups=8), ELU(),
            AveragePool((1, 4)), Convolution(16, (1, 16), padding=(0, 8), groups=16),
            Convolution(16, 1), ELU(), AveragePool((1, 8)), *_connected(4))),
        # Pictures made better: Zhang and others' (2017), Dong and others' (2014).
        Network("denoised", Pixels((1, 40, 40)), (
            *_convolutions(*[64] * 6), Convolution(1, 3, padding=1))),
        Network("sharpened", Pixels((1, 33, 33)), (
            *_convolutions(64, kernel=9), *_convolutions(32, kernel=1),
            Convolution(1, 5, padding=2))),
        # MLPerf Tiny's person and its machines' sounds (2021).
        Network("person", Pixels((3, 96, 96)), (
            Convolution(8, 3, stride=2, padding=1), ReLU(), *_by_depth(8, 16, 1),
            *_by_depth(16, 32, 2), *_by_depth(32, 32, 1), *_by_depth(32, 64, 2),
            *_by_depth(64, 64, 1), *_by_depth(64, 128, 2), *_by_depth(128, 128, 1),
            *_by_depth(128, 256, 2), *_by_depth(256, 256, 1), AveragePool(3), *_connected(2))),
        Network("anomalies", Pixels((5, 1, 128)), (
            Flatten(), *(layer for count in (128, 128, 128, 128, 8, 128, 128, 128, 128)
                         for layer in (FullyConnected(count), ReLU())), FullyConnected(640))),
        # Sabour and others' capsules (2017) before these; Zeiler and Fergus's pictures (2013).
        Network("capsules", Pixels((1, 28, 28)), (
            Convolution(256, 9), ReLU(), Convolution(256, 9, stride=2), *_connected(10))),
        Network("zeiler", Pixels((3, 112, 112)), (
            Convolution(96, 7, stride=2), ReLU(), wide, Convolution(256, 5, stride=2), ReLU(), wide,
            *_convolutions(384, 384, 256), wide, *_connected(1024, 100))),
        Network("table", Pixels((30, 1, 1)), _connected(256, 256, 256, 2)),
    ]  # fmt: skip


def _later() -> list[Network]:
    """Those that came when the others had been timed for a while."""
    pool, wide, mean = MaxPool(2), MaxPool(3, stride=2), AveragePool(3, stride=2)
    return [
        Network("atari", Pixels((4, 84, 84)), (
            Convolution(32, 8, stride=4), ReLU(), Convolution(64, 4, stride=2), ReLU(),
            Convolution(64, 3), ReLU(), *_connected(512, 6))),
        Network("caffe-cifar", Pixels((3, 32, 32)), (
            Convolution(32, 5, padding=2), wide, ReLU(), *_convolutions(32, kernel=5), mean,
            *_convolutions(64, kernel=5), mean, *_connected(64, 10))),
        Network("traffic-signs", Pixels((3, 48, 48)), (
            Convolution(100, 7), Tanh(), pool, Convolution(150, 4), Tanh(), pool,
            Convolution(250, 4), Tanh(), pool, *_connected(300, 43))),
        Network("words", Pixels((1, 49, 10)), (
            Convolution(64, (10, 4), stride=2, padding=(5, 1)), ReLU(),
            *(layer for _ in range(4) for layer in _by_depth(64, 64, 1)), *_connected(12))),
        Network("house-numbers", Pixels((3, 32, 32)), (
            Convolution(48, 5, padding=2), LeakyReLU(), pool, Convolution(64, 5, padding=2),
            LeakyReLU(), pool, Convolution(128, 5, padding=2), LeakyReLU(), pool,
            *_connected(256, 10))),
        Network("far-apart", Pixels((3, 64, 64)), (
            *_convolutions(24), Convolution(24, 3, padding=2, dilation=2), ReLU(),
            Convolution(24, 3, padding=4, dilation=4), ReLU(), MaxPool(4), *_connected(10))),
        Network("sigmoid-perceptron", Pixels((1, 28, 28)), (
            Flatten(), FullyConnected(300), Sigmoid(), FullyConnected(100), Sigmoid(),
            FullyConnected(10), Softmax())),
        _residual("resnet10", (64, 128, 256, 512), 1),
        _board(), _mixer(), _aggregated(),
    ]  # fmt: skip


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
        Network("keras-cifar", colour, (
            *_convolutions(32), Convolution(32, 3), ReLU(), pool,
            *_convolutions(64), Convolution(64, 3), ReLU(), pool, *_connected(512, 10))),
        Network("pytorch-mnist", grey, (
            Convolution(32, 3), ReLU(), Convolution(64, 3), ReLU(), pool, *_connected(128, 10))),
        Network("tf-mnist", grey, (
            *_convolutions(32, kernel=5), pool, *_convolutions(64, kernel=5), pool,
            *_connected(1024, 10))),
        _residual("resnet20", (16, 32, 64), 3),
        _residual("wide-resnet", (64, 128, 256), 1),
        _fire(), _inception(), _dense(), _inverted(), *_later(), *_latest(), *_newest(),
        *_unseen(),
    ]  # fmt: skip
