"""How the fused kernel computes a network: which layers go together, and in which tiles.

There are two schedules. In both, a convolution takes its activation and its pooling along and works
on register tiles of output positions x output channels; where a pooling window follows, a tile is
one or more windows, and the pooling happens in registers. Nothing is padded: positions whose
window sticks out of the image skip the taps outside. Tiles with the same valid taps share their
code, so each axis is cut into a few `Span`s; where those would be many, as with a large kernel, the
tiles at the borders of the image share code that counts its taps in the run (`Border`).

`by_images`: lanes are images. A vector holds one activation of as many images as it has lanes, so
every layer is plain vertical arithmetic, whatever its shape. A tap costs a load of activations for
each position and a broadcast weight for each channel. Fully connected layers read every weight once
for each set of images they work on. Those with many weights therefore take several vectors of
images at a time, as their positions.

`by_channels`: lanes are output channels of one image, for when there are fewer images than lanes.
The same tiles with the roles changed: a tap costs a broadcast activation for each position and a
load of weights for each vector of channels. A picture lies as [y][x][channel], its channels filled
up to whole vectors; what the surplus lanes compute is never read. Where half of the last vector or
more would be surplus, it holds the channels left over for several positions at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.flow import flow
from tilewright.fuse.cpu.pictures import (
    Picture,
    channels_picture,
    lanes_picture,
    planar_picture,
    staggered_picture,
)
from tilewright.fuse.cpu.tiles import (
    Block,
    Border,
    Span,
    Target,
    best_tile,
    block_width,
    blocks_of,
    last_alone,
    packed_blocks,
    spans,
    with_borders,
)
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Elementwise,
    FullyConnected,
    MaxPool,
    Pooling,
    Shape,
)
from tilewright.model.layers.forms import require
from tilewright.model.network import Network, Stage

# Layers that are compiled at most: a thousand small ones take seconds.
MOST_LAYERS = 1000
# A kernel with more taps than this loops over its rows, and one with more columns than that over
# those, instead of being unrolled.
UNROLLED_TAPS, UNROLLED_COLUMNS = 9, 12
# Multiply-adds in the code of a convolution at most; 10,000 are compiled in a second. With more,
# tiles at the borders of the image share code that finds its taps in the run, which takes longer.
MOST_MULTIPLY_ADDS = 16_000
# Above this size a fully connected layer's weights are read for several vectors of images at once.
LARGE_WEIGHTS_BYTES = 64 * 1024
# Positions of a tile where every channel is its own and lanes are images: nothing else is summed.
LONE_ROW = (1, 8)
# Vectors of outputs in a block of such a layer where lanes are channels: the fewer, the more evenly
# the blocks can be shared out.
DENSE_VECTORS = 2


@dataclass(frozen=True)
class ConvolutionGroup:
    """A convolution with what follows it: other values that are added, an activation, a pooling.

    Its items are channels, or vectors of channels; an item has `unit` of them. Blocks are those of
    one part: channels and filters that belong together are computed as a convolution of their own,
    with weights of their own.
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
        return _channelwise(self.stages[0], self.unit)

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
    """A fully connected layer with its activation, on `images` vectors of images at a time.

    `chunk` inputs at a time, so that they stay in the first cache. Where lanes are channels,
    `images` is 1 and `unit` the outputs in a vector.
    """

    stages: tuple[Stage, ...]
    layer: FullyConnected
    activation: Elementwise | None
    unit: int
    images: int
    chunk: int
    blocks: tuple[Block, ...]

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


Group = ConvolutionGroup | DenseGroup | PlainGroup


def padded_channels(group: ConvolutionGroup | DenseGroup) -> int:
    """Output channels, of a part, with those that fill up the last vector."""
    last = group.blocks[-1]
    return (last.first + last.width * last.count) * group.unit


@dataclass(frozen=True)
class Schedule:
    """Groups in order. From group `gathered` on, several vectors of images go `together`.

    Value 0 is what goes into the network, value i + 1 what group i makes; `takes` says of which
    values each group makes its own: those of its first layer, then what is added.
    """

    target: Target
    lanes_are: str
    groups: tuple[Group, ...]
    gathered: int
    together: int
    takes: tuple[tuple[int, ...], ...]
    # How each value lies; the last is what comes out of the network.
    pictures: tuple[Picture, ...]

    @property
    def last_readers(self) -> tuple[int, ...]:
        """The last group that takes each value; what comes out of the network outlives them all."""
        last = [len(self.groups)] * len(self.pictures)
        for index, taken in enumerate(self.takes):
            for value in taken:
                last[value] = index
        return tuple(last)

    @property
    def kept(self) -> tuple[int, ...]:
        """The values that outlive a vector of images: those that gathered groups take or make."""
        return tuple(v for v, last in enumerate(self.last_readers) if last >= self.gathered)

    @property
    def executed_flops(self) -> int:
        """FLOP that are computed for one image: a share of the peak is a share of these.

        The network's own count has the taps outside the image, too.
        """
        return sum(group.executed_flops for group in self.groups)


@dataclass(frozen=True)
class Rules:
    """What `by_images` is free to choose. The defaults are those that measured best.

    `windows` is how many pooling windows make a tile, `row` the positions of one without pooling,
    `spare` the registers that a tile leaves free; `together` the vectors of images that a large
    product takes at once, `chunk_bytes` what of their inputs it reads at a time.
    """

    windows: tuple[int, int] = (1, 1)
    row: tuple[int, int] = (1, 4)
    spare: int = 0
    together: int = 4
    chunk_bytes: int = 16 * 1024


DEFAULT = Rules()
# Positions along y and x of the tiles of some convolutions, which then are not to be chosen.
Tiles = Mapping[str, tuple[int, int]]
NONE: Tiles = {}
# For every group, the values that it takes.
Takes = list[tuple[int, ...]]


def by_images(
    network: Network, target: Target, rules: Rules = DEFAULT, tiles: Tiles = NONE
) -> Schedule:
    """The schedule for many images: a few rules, no search."""
    free = replace(target, registers=target.registers - rules.spare)
    groups, takes = _groups(network, free, 1, rules, tiles)
    large = [i for i, g in enumerate(groups) if isinstance(g, DenseGroup) and g.images > 1]
    shapes = [network.input.shape, *map(_written_shape, groups)]
    pictures = [lanes_picture(shape, target.lanes) for shape in shapes]
    for i in range(1, len(groups)):
        readers = [group for group, taken in zip(groups, takes, strict=True) if i in taken]
        # Only convolutions and poolings write and read row by row.
        if _by_rows(groups[i - 1]) and all(isinstance(g, ConvolutionGroup) for g in readers):
            pictures[i] = staggered_picture(shapes[i], target.lanes)
    gathered = large[0] if large else len(groups)
    together = rules.together if large else 1
    return Schedule(
        target, "images", tuple(groups), gathered, together, tuple(takes), tuple(pictures)
    )


def by_channels(network: Network, target: Target, tiles: Tiles = NONE) -> Schedule:
    """The schedule for few images, one at a time."""
    groups, takes = _groups(network, target, target.lanes, DEFAULT, tiles)
    picture = channels_picture if _as_vectors(groups, takes) else planar_picture
    pictures = [picture(network.input.shape, target.lanes)]
    for group, taken in zip(groups, takes, strict=True):
        before = {pictures[value] for value in taken}
        same = _in_place(group) and len(before) == 1
        after = channels_picture(_written_shape(group), target.lanes)
        pictures.append(before.pop() if same else after)
    return Schedule(
        target, "channels", tuple(groups), len(groups), 1, tuple(takes), tuple(pictures)
    )


def _as_vectors(groups: list[Group], takes: Takes) -> bool:
    """Whether somebody wants the channels of a pixel side by side.

    A convolution or product reads pixels as they come; poolings, softmax and sums want vectors.
    """
    as_given = {0}
    for index, (group, taken) in enumerate(zip(groups, takes, strict=True)):
        if as_given.isdisjoint(taken):
            continue
        if isinstance(group.stages[0].layer, Elementwise):
            as_given.add(index + 1)
        elif not (_one_by_one(group) and as_given.isdisjoint(taken[1:])):
            return True
    return False


def _one_by_one(group: Group) -> bool:
    """Whether a group reads what it computes with value by value, not as vectors."""
    if isinstance(group, ConvolutionGroup):
        return not group.channelwise
    return isinstance(group, DenseGroup)


def reads_pixels(plan: Schedule) -> bool:
    """Whether the values of an image could be read where they are, without any order."""
    pairs = zip(plan.groups, plan.takes, strict=True)
    return all(_one_by_one(g) and 0 not in taken[1:] for g, taken in pairs if 0 in taken)


def _groups(
    network: Network, target: Target, unit: int, rules: Rules, tiles: Tiles
) -> tuple[list[Group], Takes]:
    """The groups, and the values that each takes."""
    found = flow(network)
    if len(found.stages) > MOST_LAYERS:
        raise TilewrightError(
            f"network {network.name!r} has {len(found.stages):,} layers; the fused rung compiles "
            f"at most {MOST_LAYERS:,}"
        )
    for stage in found.stages:
        require(stage, "llvm")
    groups: list[Group] = []
    takes: Takes = []
    values = {0: 0}
    place = 0
    while place < len(found.stages):
        run = found.run(place)
        group = (
            _convolution(run, target, unit, rules, tiles)
            or _dense(run, target, unit, rules)
            or PlainGroup((run[0],), unit)
        )
        first, *others = (found.sources[stage.index] for stage in group.stages)
        inside = {stage.index for stage in group.stages}
        more = [each for taken in others for each in taken if each not in inside]
        takes.append(tuple(values[each] for each in (*first, *more)))
        groups.append(group)
        values[group.stages[-1].index] = len(groups)
        place += len(group.stages)
    return groups, takes


def _written_shape(group: Group) -> Shape:
    """The shape a group writes: a picture, also where its activation comes after a Flatten."""
    shapes = [stage.output_shape for stage in group.stages]
    return next((shape for shape in reversed(shapes) if len(shape) == 3), shapes[-1])


def _by_rows(group: Group) -> bool:
    return isinstance(group, ConvolutionGroup) or isinstance(group.stages[0].layer, Pooling)


def _in_place(group: Group) -> bool:
    """Whether every activation stays where it is."""
    return isinstance(group, PlainGroup) and not isinstance(group.stages[0].layer, Pooling)


def _convolution(
    run: list[Stage], target: Target, unit: int, rules: Rules, tiles: Tiles
) -> ConvolutionGroup | None:
    layer = run[0].layer
    if type(layer) is not Convolution:
        return None
    taken = run[:1]
    if len(run) > 1 and isinstance(run[1].layer, Add) and len(run[1].output_shape) == 3:
        taken = run[:2]
    activation = _activation(run, len(taken))
    taken = run[: len(taken) + bool(activation)]
    following = run[len(taken)] if len(run) > len(taken) else None
    _, height, width = run[0].input_shape
    _, out_y, out_x = run[0].output_shape
    pooling = following.layer if following and _fits(following, target) else None
    assert pooling is None or isinstance(pooling, Pooling)
    taken = run[: len(taken) + bool(pooling)]
    window = pooling.size if pooling else (1, 1)
    windows = (out_y // window[0], out_x // window[1])
    channelwise = _channelwise(run[0], unit)
    # Vectors of channels that have the same activations, or channels.
    filters = unit if channelwise else layer.filters // layer.groups
    if run[0].name in tiles:
        tile = _given_tile(run[0].name, tiles[run[0].name], windows, window, target)
    elif unit > 1:
        tile = best_tile(*windows, filters, target, window)
    else:
        row = rules.row if filters > 1 else LONE_ROW
        wanted = rules.windows if pooling else row
        tile = (window[0] * min(wanted[0], windows[0]), window[1] * min(wanted[1], windows[1]))
    if channelwise:
        blocks = blocks_of(math.ceil(layer.filters / unit), 1)
    elif unit > 1:
        blocks = packed_blocks(filters, math.prod(tile), target)
    else:
        across = block_width(filters, math.prod(tile), target)
        blocks = blocks_of(filters, across)
    if unit > 1 and layer.groups > 1:
        blocks = last_alone(blocks)
    rows, columns = (
        spans(
            outputs, tile[i], layer.kernel[i], layer.stride[i], layer.padding[i], size, window[i],
            layer.dilation[i],
        )
        for i, outputs, size in ((0, out_y, height), (1, out_x, width))
    )  # fmt: skip
    return ConvolutionGroup(
        tuple(taken), layer, activation, pooling, unit, tile, blocks, rows, columns
    )  # fmt: skip


def _channelwise(stage: Stage, unit: int) -> bool:
    """Whether each of several filters has a channel to itself, and lanes are channels."""
    layer = stage.layer
    assert isinstance(layer, Convolution)
    return unit > 1 and 1 < layer.groups == layer.filters == stage.input_shape[0]


def _given_tile(
    layer: str,
    tile: tuple[int, int],
    windows: tuple[int, int],
    window: tuple[int, int],
    target: Target,
) -> tuple[int, int]:
    """A tile of whole windows that are there, and whose sums the registers hold."""
    parts = [divmod(size, each) for size, each in zip(tile, window, strict=True)]
    most = max(1, (target.registers - 2) // math.prod(window))
    if (
        any(rest for _, rest in parts)
        or any(not 1 <= count <= there for (count, _), there in zip(parts, windows, strict=True))
        or math.prod(count for count, _ in parts) > most
    ):
        raise TilewrightError(
            f"{layer}: a tile of {tile[0]}x{tile[1]} positions is not possible with windows of "
            f"{window[0]}x{window[1]} and {target.registers} registers"
        )
    return tile


def _dense(run: list[Stage], target: Target, unit: int, rules: Rules) -> DenseGroup | None:
    layer = run[0].layer
    if type(layer) is not FullyConnected:
        return None
    activation = _activation(run, 1)
    large = 4 * run[0].parameter_count > LARGE_WEIGHTS_BYTES
    images = rules.together if large and unit == 1 else 1
    chunk = max(1, rules.chunk_bytes // (4 * target.lanes * images))
    items = math.ceil(layer.outputs / unit)
    taken = tuple(run[: 2 if activation else 1])
    width = block_width(items, images, target) if unit == 1 else min(items, DENSE_VECTORS)
    blocks = blocks_of(items, width)
    return DenseGroup(taken, layer, activation, unit, images, chunk, blocks)


def _activation(run: list[Stage], index: int) -> Elementwise | None:
    layer = run[index].layer if len(run) > index else None
    return layer if isinstance(layer, Elementwise) else None


def _fits(stage: Stage, target: Target) -> bool:
    """Whether a pooling window can be a register tile: windows must lie inside the picture, not
    overlap nor be large."""
    pooling = stage.layer
    if not isinstance(pooling, MaxPool | AveragePool) or max(pooling.beyond(stage.input_shape)) > 0:
        return False
    return pooling.stride == pooling.size and 2 * math.prod(pooling.size) <= target.registers // 2


def average_factor(pooling: Pooling | None) -> float | None:
    """What a sum over the window is multiplied by, if the pooling is an average."""
    return 1 / math.prod(pooling.size) if isinstance(pooling, AveragePool) else None
