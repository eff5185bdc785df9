"""Layers that are computed together, in which tiles: plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.fuse.cpu.tiles import Block, Border, Span, with_borders
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.layers import AveragePool, Convolution, Elementwise, FullyConnected, Pooling
from tilewright.model.network import Stage

# A kernel with more taps than this loops over its rows, and one with more columns than that over
# those, instead of being unrolled.
UNROLLED_TAPS, UNROLLED_COLUMNS = 9, 12
# Multiply-adds in the code of a convolution at most; 10,000 are compiled in a second. With more,
# tiles at the borders of the image share code that finds its taps in the run, which takes longer.
MOST_MULTIPLY_ADDS = 16_000


@dataclass(frozen=True)
class ConvolutionGroup:
    """A convolution with what follows it: other values that are added, an activation, a pooling.

    Its items are channels, or vectors of channels; an item has `unit` of them. Blocks are those of
    one part: channels and filters that belong together are computed as a convolution of their own,
    with weights of their own. All of them are computed of so many columns of tiles before the next;
    or, where their weights would come from `far` away for every row of tiles, or there is one such
    row, which several cores could not share, `by_blocks`, of the whole picture before the next
    block.
    """

    stages: tuple[Stage, ...]
    layer: Convolution
    activation: Elementwise | None
    pooling: Pooling | None
    unit: int
    tile: tuple[int, int]
    blocks: tuple[Block, ...]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]
    columns_at_once: int
    by_blocks: bool
    far: bool

    @property
    def accumulators(self) -> int:
        return max(block.sums(math.prod(self.tile)) for block in self.blocks)

    @property
    def loads_per_fma(self) -> float:
        positions, width = math.prod(self.tile), self.blocks[0].width
        return (positions + width) / (positions * width)

    @property
    def channelwise(self) -> bool:
        """Whether lanes are channels of the input, too: each filter has one to itself."""
        return channelwise(self.stages[0], self.unit)

    @property
    def parts(self) -> int:
        """How many convolutions of channels that belong together there are."""
        return 1 if self.channelwise else self.layer.groups

    @property
    def depth(self) -> int:
        """The channels that a filter sees."""
        return self.stages[0].input_shape[0] // self.layer.groups

    @property
    def left_over(self) -> int:
        """The channels in the last vector of a part whose others begin anywhere in a vector; none
        where parts are whole vectors, or everything is one."""
        return self.layer.filters // self.parts % self.unit if self.parts > 1 else 0

    @property
    def weights(self) -> int:
        return self.layer.filters * self.depth * math.prod(self.layer.kernel)

    @property
    def waits(self) -> bool:
        """Whether a block goes over the pictures of all images before the next one: these come from
        afar for each block then, and weights for all images once, where they are more."""
        passes = sum(block.count for block in self.blocks)
        return self.far and passes * math.prod(self.stages[0].input_shape) < self.weights

    @property
    def window(self) -> tuple[int, int]:
        return self.pooling.size if self.pooling else (1, 1)

    @property
    def pieces(self) -> tuple[tuple[Span | Border, ...], tuple[Span | Border, ...]]:
        """The rows and the columns of tiles that have code of their own."""
        height, width = self.layer.kernel
        lines = height if height * width <= UNROLLED_TAPS else self.tile[0]
        sums = sum(block.sums(math.prod(self.tile)) for block in self.blocks)
        multiply_adds = len(self.rows) * len(self.columns) * lines * width * sums
        if width <= UNROLLED_COLUMNS and multiply_adds <= MOST_MULTIPLY_ADDS:
            return self.rows, self.columns
        return (
            with_borders(self.rows, self.tile[0], height, self.window[0]),
            with_borders(self.columns, self.tile[1], width, self.window[1]),
        )

    @property
    def executed_flops(self) -> int:
        """FLOP for one image, without the taps outside the image, with the lanes left over."""
        rows, columns = (
            sum((s.last - s.first) * sum(high - low for low, high in s.taps) for s in spans)
            for spans in (self.rows, self.columns)
        )
        lanes = padded_channels(self) - self.unit + math.ceil(self.unit / self.blocks[-1].packed)
        return 2 * rows * columns * self.depth * lanes * self.parts


@dataclass(frozen=True)
class DenseGroup:
    """A fully connected layer with its activation, on `images` vectors of images at a time, or,
    where lanes are channels, on up to so many images; `unit` then is the outputs in a vector.

    So that they stay in a cache, `chunk` inputs are taken at a time: of vectors of images they
    themselves stay in the first, else their weights in the second. `large` are those with many
    weights.
    """

    stages: tuple[Stage, ...]
    layer: FullyConnected
    activation: Elementwise | None
    unit: int
    images: int
    chunk: int
    blocks: tuple[Block, ...]
    large: bool

    @property
    def executed_flops(self) -> int:
        """FLOP for one image, with the lanes left over."""
        return 2 * math.prod(self.stages[0].input_shape) * padded_channels(self)


@dataclass(frozen=True)
class PlainGroup:
    """A layer of its own: pooling that cannot be fused, activations, softmax, what joins."""

    stages: tuple[Stage, ...]
    unit: int

    @property
    def executed_flops(self) -> int:
        return sum(stage.flops for stage in self.stages)


Group = ConvolutionGroup | WinogradGroup | DenseGroup | PlainGroup
# A convolution, and what it takes along.
Convolved = (ConvolutionGroup, WinogradGroup)


def reads_once(group: Group) -> bool:
    """Whether weights come from far away: of images that go one by one, once for all of them."""
    if isinstance(group, DenseGroup):
        return group.large
    return isinstance(group, ConvolutionGroup) and group.waits


def padded_channels(group: ConvolutionGroup | DenseGroup) -> int:
    """Output channels, of a part, with those that fill up the last vector."""
    last = group.blocks[-1]
    return (last.first + last.width * last.count) * group.unit


def channelwise(stage: Stage, unit: int) -> bool:
    """Whether each of several filters has a channel to itself, and lanes are channels."""
    layer = stage.layer
    assert isinstance(layer, Convolution)
    return unit > 1 and 1 < layer.groups == layer.filters == stage.input_shape[0]


def average_factor(pooling: Pooling | None) -> float | None:
    """What a sum over the window is multiplied by, if the pooling is an average."""
    return 1 / math.prod(pooling.size) if isinstance(pooling, AveragePool) else None
