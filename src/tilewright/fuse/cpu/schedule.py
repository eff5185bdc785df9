"""How the fused kernel computes a network: which layers go together, and in which tiles.

Lanes are images: a vector holds one activation of as many images as it has lanes, so every layer
is plain vertical arithmetic, whatever its shape. A convolution takes its activation and its pooling
along and works on register tiles of output positions x output channels. With P positions and C
channels a tap costs P loads of activations and C broadcasts of weights for P x C multiply-adds.
Where a pooling window follows, its positions are the tile, and the pooling happens in registers.

Nothing is padded: positions whose window sticks out of the image skip the taps outside. Tiles with
the same valid taps share their code, so each axis is cut into a few `Span`s.

Fully connected layers read every weight once for each set of images they work on. Those with
many weights therefore take several vectors of images at a time (`BLOCKS`), as their positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.model.layers import (
    AveragePool,
    Convolution,
    FullyConnected,
    Pooling,
    Shape,
)
from tilewright.model.network import Network, Stage

# Above this size a fully connected layer's weights are read for several vectors of images at once.
LARGE_WEIGHTS_BYTES = 64 * 1024
BLOCKS = 4
# Inputs of such a layer taken at a time, so that they stay in the first cache.
CHUNK = 128
# A kernel with more taps than this loops over its rows instead of being unrolled.
UNROLLED_TAPS = 64
# Positions along x where no pooling gives them.
ROW_POSITIONS = 4


@dataclass(frozen=True)
class Target:
    """What the schedule must know of a CPU: floats in a vector, and vector registers."""

    lanes: int
    registers: int


@dataclass(frozen=True)
class Span:
    """Tiles `first` to `last` along one axis: for each position of a tile, its valid taps.

    `taps[d]` is the range of kernel taps inside the image for the tile's position `d`.
    """

    first: int
    last: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ChannelBlock:
    """`count` blocks of `width` output channels, beginning at channel `first`."""

    first: int
    width: int
    count: int


@dataclass(frozen=True)
class Picture:
    """How activations lie in memory, in vectors: a row every `pitch`, a channel every `plane`."""

    channels: int
    height: int
    width: int
    pitch: int
    plane: int

    @property
    def size(self) -> int:
        return self.channels * self.plane


def dense_picture(shape: Shape) -> Picture:
    """No gaps; a row of features is a column of pixels."""
    channels, height, width = shape if len(shape) == 3 else (shape[0], 1, 1)
    return Picture(channels, height, width, width, height * width)


def staggered_picture(shape: Shape) -> Picture:
    """Odd distances between rows and channels.

    A tile reads the same place of every channel. With planes of a power of two those places
    fall into the same few lines of the first cache and drive each other out.
    """
    channels, height, width = shape
    pitch = width | 1
    return Picture(channels, height, width, pitch, (pitch * height) | 1)


@dataclass(frozen=True)
class ConvolutionGroup:
    """A convolution with the activation and the pooling that follow it."""

    stages: tuple[Stage, ...]
    layer: Convolution
    activation: str | None
    pooling: Pooling | None
    tile: tuple[int, int]
    blocks: tuple[ChannelBlock, ...]
    rows: tuple[Span, ...]
    columns: tuple[Span, ...]

    @property
    def accumulators(self) -> int:
        return math.prod(self.tile) * max(block.width for block in self.blocks)

    @property
    def loads_per_fma(self) -> float:
        positions, width = math.prod(self.tile), self.blocks[0].width
        return (positions + width) / (positions * width)

    @property
    def executed_flops(self) -> int:
        """FLOP for one image, without the taps outside the image."""
        rows, columns = (
            sum((s.last - s.first) * sum(high - low for low, high in s.taps) for s in spans)
            for spans in (self.rows, self.columns)
        )
        return 2 * rows * columns * self.stages[0].input_shape[0] * self.layer.filters


@dataclass(frozen=True)
class DenseGroup:
    """A fully connected layer, on `images` vectors of images at a time, with its activation."""

    stages: tuple[Stage, ...]
    layer: FullyConnected
    activation: str | None
    images: int
    blocks: tuple[ChannelBlock, ...]


@dataclass(frozen=True)
class PlainGroup:
    """A layer of its own: pooling that cannot be fused, activations, softmax."""

    stages: tuple[Stage, ...]


Group = ConvolutionGroup | DenseGroup | PlainGroup


@dataclass(frozen=True)
class Schedule:
    """Groups in order. From group `gathered` on, several vectors of images go `together`."""

    target: Target
    groups: tuple[Group, ...]
    gathered: int
    # What goes into each group, and last what comes out of the network.
    pictures: tuple[Picture, ...]

    @property
    def together(self) -> int:
        return BLOCKS if self.gathered < len(self.groups) else 1


def schedule(network: Network, target: Target) -> Schedule:
    """The schedule of a network on a CPU: a few rules, no search."""
    rest = [stage for stage in network.stages[1:] if stage.kind != "flatten"]
    groups: list[Group] = []
    while rest:
        group = _convolution(rest, target) or _dense(rest, target) or PlainGroup((rest[0],))
        rest = rest[len(group.stages) :]
        groups.append(group)
    large = [i for i, g in enumerate(groups) if isinstance(g, DenseGroup) and g.images > 1]
    shapes = [network.input.shape, *map(_written_shape, groups)]
    pictures = [dense_picture(shape) for shape in shapes]
    for i in range(1, len(groups)):
        # Only convolutions and poolings write and read row by row.
        if _by_rows(groups[i - 1]) and isinstance(groups[i], ConvolutionGroup):
            pictures[i] = staggered_picture(shapes[i])
    gathered = large[0] if large else len(groups)
    return Schedule(target, tuple(groups), gathered, tuple(pictures))


def _written_shape(group: Group) -> Shape:
    """The shape a group writes: a picture, also where its activation comes after a Flatten."""
    shapes = [stage.output_shape for stage in group.stages]
    return next((shape for shape in reversed(shapes) if len(shape) == 3), shapes[-1])


def _by_rows(group: Group) -> bool:
    return isinstance(group, ConvolutionGroup) or group.stages[0].kind == "pool"


def _convolution(rest: list[Stage], target: Target) -> ConvolutionGroup | None:
    layer = rest[0].layer
    if not isinstance(layer, Convolution):
        return None
    taken = [rest[0]]
    activation = _activation(rest, 1)
    taken += rest[1:2] if activation else []
    pooling = rest[len(taken)].layer if len(rest) > len(taken) else None
    if isinstance(pooling, Pooling) and _fits(pooling, target):
        taken.append(rest[len(taken)])
        tile = pooling.size
    else:
        pooling = None
        tile = (1, min(ROW_POSITIONS, rest[0].output_shape[2]))
    width = channel_width(layer.filters, math.prod(tile), target)
    _, height, column = rest[0].input_shape
    _, out_y, out_x = rest[0].output_shape
    return ConvolutionGroup(
        tuple(taken),
        layer,
        activation,
        pooling if isinstance(pooling, Pooling) else None,
        tile,
        channel_blocks(layer.filters, width),
        spans(out_y, tile[0], layer.kernel[0], layer.stride[0], layer.padding[0], height, pooling),
        spans(out_x, tile[1], layer.kernel[1], layer.stride[1], layer.padding[1], column, pooling),
    )


def _dense(rest: list[Stage], target: Target) -> DenseGroup | None:
    layer = rest[0].layer
    if not isinstance(layer, FullyConnected):
        return None
    activation = _activation(rest, 1)
    large = 4 * rest[0].parameter_count > LARGE_WEIGHTS_BYTES
    images = BLOCKS if large else 1
    width = channel_width(layer.outputs, images, target)
    taken = tuple(rest[: 2 if activation else 1])
    return DenseGroup(taken, layer, activation, images, channel_blocks(layer.outputs, width))


def _activation(rest: list[Stage], index: int) -> str | None:
    kind = rest[index].kind if len(rest) > index else None
    return kind if kind in ("relu", "tanh") else None


def _fits(pooling: Pooling, target: Target) -> bool:
    """Whether a pooling window can be a register tile: windows must not overlap nor be large."""
    return pooling.stride == pooling.size and 2 * math.prod(pooling.size) <= target.registers // 2


def channel_width(channels: int, positions: int, target: Target) -> int:
    """Output channels in a tile: as many as registers allow, then no more blocks than needed.

    A tile needs its accumulators, one broadcast weight a channel, and one activation.
    """
    most = max(1, (target.registers - 1) // (positions + 1))
    blocks = math.ceil(channels / most)
    return math.ceil(channels / blocks)


def channel_blocks(channels: int, width: int) -> tuple[ChannelBlock, ...]:
    """Blocks of `width` channels, then of one fewer, so that none is much emptier than another."""
    count = math.ceil(channels / width)
    narrow = count * width - channels
    if narrow > count:  # one fewer in each is not enough: full blocks and a remainder
        full, rest = divmod(channels, width)
        blocks = [ChannelBlock(0, width, full)]
        return tuple(blocks + ([ChannelBlock(full * width, rest, 1)] if rest else []))
    wide = count - narrow
    blocks = [ChannelBlock(0, width, wide)] if wide else []
    if narrow:
        blocks.append(ChannelBlock(wide * width, width - 1, narrow))
    return tuple(blocks)


def spans(
    outputs: int, tile: int, kernel: int, stride: int, padding: int, size: int, pooling: object
) -> tuple[Span, ...]:
    """Cut an axis into tiles, and gather neighbours that have the same valid taps."""

    def taps(position: int) -> tuple[int, int]:
        start = position * stride - padding
        return max(0, -start), max(0, -start, min(kernel, size - start))

    found: list[Span] = []
    whole = outputs // tile
    for index in range(whole):
        valid = tuple(taps(index * tile + d) for d in range(tile))
        if found and found[-1].taps == valid:
            found[-1] = Span(found[-1].first, index + 1, valid)
        else:
            found.append(Span(index, index + 1, valid))
    if outputs % tile and not pooling:
        valid = tuple(taps(p) for p in range(whole * tile, outputs))
        found.append(Span(whole, whole + 1, valid))
    return tuple(found)


def average_factor(pooling: Pooling | None) -> float | None:
    """What a sum over the window is multiplied by, if the pooling is an average."""
    return 1 / math.prod(pooling.size) if isinstance(pooling, AveragePool) else None
