"""Which layers of a network go together, and in which tiles: a few rules, no search."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.flow import flow
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, Group, PlainGroup, channelwise
from tilewright.fuse.cpu.tiles import (
    WIDE_LANES,
    Target,
    best_tile,
    block_width,
    blocks_of,
    last_alone,
    packed_blocks,
    spans,
    weights_stay,
)
from tilewright.fuse.cpu.winograd import (
    WinogradGroup,
    chunk,
    pays,
    pooled_along,
    winograd_group,
)
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Elementwise,
    FullyConnected,
    MaxPool,
    Pooling,
)
from tilewright.model.layers.forms import require
from tilewright.model.network import Network, Stage
from tilewright.precision import FLOAT32, Precision, Transforms

# Layers that are compiled at most: a thousand small ones take seconds.
MOST_LAYERS = 1000
# Above this size a fully connected layer's weights are read for several vectors of images at once.
LARGE_WEIGHTS_BYTES = 64 * 1024
# What tiles of a row read, of which all blocks of channels are computed one after the other: it is
# to stay in the second cache. The 5x5 convolution of 64 x 32 x 32 of `alexnet`, whose rows of tiles
# read 786 KB for 16 images, then reached 91 GFLOP/s instead of 81 (a core of an AMD EPYC with
# 1 MB, AVX-512, ticks of 16 images, 2026-11-17).
STAYING_BYTES = 2**18
# Positions of a tile where every channel is its own and lanes are images: nothing else is summed.
LONE_ROW = (1, 8)
# Vectors of outputs in a block of such a layer where lanes are channels, and the images that are
# multiplied at once at most, whose sums the registers must hold: with a wide vector a block behind
# convolutions is one of them, which can be shared out more evenly.
DENSE_VECTORS = 2
MOST_AT_ONCE = 16
# A block's weights that all sets of images are multiplied by before the next of them, in
# `chunk_bytes`: those that the second cache holds. With those that the first holds, whose sums are
# read and written more often, 784-512-512-10 and 3072-2048-2048-10 took 2 and 3 % longer (1,000
# images on a core of an AMD EPYC, AVX-512, processor's seconds, 2026-11-18).
WEIGHTS = 8


@dataclass(frozen=True)
class Rules:
    """What `by_images` is free to choose. The defaults are those that measured best.

    `windows` is how many pooling windows make a tile, `row` the positions of one without pooling;
    `together` the vectors of images that a large product takes at once, `chunk_bytes` what of their
    inputs it reads at a time, or of weights, eight times as many. In a `precision` with Winograd
    algorithms, the convolutions in `faster` are computed by them, or (None) where that pays; else
    every product is added up.
    """

    windows: tuple[int, int] = (1, 1)
    row: tuple[int, int] = (1, 4)
    together: int = 4
    chunk_bytes: int = 16 * 1024
    precision: Precision = FLOAT32
    faster: frozenset[str] | None = None

    def possible(self, stage: Stage) -> Transforms | None:
        """Those that a convolution may be computed with, if any."""
        layer = stage.layer
        if not isinstance(layer, Convolution):
            return None
        return self.precision.transforms(layer.kernel, layer.stride, layer.dilation, layer.groups)

    def transforms(self, stage: Stage) -> Transforms | None:
        """Those that a convolution is computed with, if any."""
        found = self.possible(stage)
        if found is None:
            return None
        wanted = pays(stage, found) if self.faster is None else stage.name in self.faster
        return found if wanted else None


DEFAULT = Rules()
# Positions along y and x of the tiles of some convolutions, which then are not to be chosen.
Tiles = Mapping[str, tuple[int, int]]
NONE: Tiles = {}
# For every group, the values that it takes.
Takes = list[tuple[int, ...]]


def groups_of(
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
            or _dense(run, target, unit, rules, _gathering(groups, found.stages))
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


def _convolution(
    run: list[Stage], target: Target, unit: int, rules: Rules, tiles: Tiles
) -> ConvolutionGroup | WinogradGroup | None:
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
    transforms = rules.transforms(run[0])
    if transforms and pooling and not pooled_along(pooling, transforms):
        pooling = None
    taken = run[: len(taken) + bool(pooling)]
    window = pooling.size if pooling else (1, 1)
    if transforms:
        given = tiles.get(run[0].name) or chunk((out_y, out_x), window, transforms.outputs)
        return winograd_group(tuple(taken), activation, pooling, transforms, given, target)
    windows = (out_y // window[0], out_x // window[1])
    alone = channelwise(run[0], unit)
    # Vectors of channels that have the same activations, or channels.
    filters = unit if alone else layer.filters // layer.groups
    channels = run[0].input_shape[0] // layer.groups
    depth = channels * math.prod(layer.kernel)
    if run[0].name in tiles:
        tile = _given_tile(run[0].name, tiles[run[0].name], windows, window, target)
    elif unit > 1:
        tile = best_tile(*windows, filters, depth, target, window)
    else:
        wanted = rules.windows if pooling else LONE_ROW if filters == 1 else rules.row
        tile = (window[0] * min(wanted[0], windows[0]), window[1] * min(wanted[1], windows[1]))
    if alone:
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
    # What a column of tiles reads.
    read = tile[0] * layer.stride[0] + (layer.kernel[0] - 1) * layer.dilation[0]
    images = target.lanes if unit == 1 else 1
    column = 4 * images * channels * read * tile[1] * layer.stride[1]
    at_once = max(1, STAYING_BYTES // column)
    # Either all weights are read for every row of tiles, or the picture, which is then to be the
    # smaller one, for every block.
    weights, picture = layer.filters * depth, math.prod(run[0].input_shape)
    passes = sum(block.count for block in blocks)
    alike = unit > 1 and layer.groups == 1
    far = (
        alike
        and not weights_stay(weights, target)
        and picture < weights
        and picture * passes < weights * (rows[-1].last if rows else 0)
    )
    # Several cores cannot share a single row, but its filters.
    by_blocks = far or (alike and passes > 1 and bool(rows) and rows[-1].last == 1)
    return ConvolutionGroup(
        tuple(taken), layer, activation, pooling, unit, tile, blocks, rows, columns, at_once,
        by_blocks, far,
    )  # fmt: skip


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


def _gathering(groups: list[Group], stages: Sequence[Stage]) -> bool:
    """Whether a product takes several images for the sake of others: they are gathered already, or
    nothing is to be done with each of them at all."""
    products = not any(isinstance(stage.layer, Convolution) for stage in stages)
    begins = not groups and products
    return begins or any(isinstance(g, DenseGroup) and g.images > 1 for g in groups)


def _dense(
    run: list[Stage], target: Target, unit: int, rules: Rules, gathering: bool
) -> DenseGroup | None:
    layer = run[0].layer
    if type(layer) is not FullyConnected:
        return None
    activation = _activation(run, 1)
    large = 4 * run[0].parameter_count > LARGE_WEIGHTS_BYTES
    items = math.ceil(layer.outputs / unit)
    taken = tuple(run[: 2 if activation else 1])
    if unit == 1:
        images = rules.together if large else 1
        width = block_width(items, images, target)
    else:
        narrow = large and unit == WIDE_LANES and not gathering
        width = 1 if narrow else min(items, DENSE_VECTORS)
        # Besides the sums a register for each weight, and one for an input.
        most = (target.registers - 1) // width - 1
        images = min(most, MOST_AT_ONCE) if large or gathering else 1
    if unit == 1:
        chunk = rules.chunk_bytes // (4 * target.lanes * images)
    else:
        chunk = WEIGHTS * rules.chunk_bytes // (4 * target.lanes * width)
    chunk = max(1, chunk)
    blocks = blocks_of(items, width)
    return DenseGroup(taken, layer, activation, unit, images, chunk, blocks, large)


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
