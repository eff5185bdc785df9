"""Convolutions by Winograd's algorithm, in which pieces: plain data.

Tiles of m x m outputs are Aᵀ[Σ (G g Gᵀ) ⊙ (Bᵀ d B)]A: for each channel n x n values of a tile of
the input, n = m + 2 for three taps and m + 4 for five, meet n x n values made of the weights. What
is left of the convolution is n² products of matrices, filters x channels by channels x tiles, with
fewer multiply-adds: 36 instead of 144 for a tile of 4x4, or instead of 100 for one of 2x2 and five
taps. Lanes are images. A few tiles that lie together are a *chunk*: of all channels they are
transformed into memory, multiplied value by value, for each of them block by block of filters, and
transformed back in registers, where sums with other values, activation and pooling follow. Nothing
is padded: values outside of the picture are zeros that are not read, and outputs outside are not
computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.fuse.cpu.tiles import MULTIPLY_ADDS, Block, Target, block_width, blocks_of
from tilewright.model.layers import Convolution, Elementwise, Pooling
from tilewright.model.network import Stage
from tilewright.precision import Transforms

# Tiles of a chunk: each weight that is read is used for as many.
MOST_TILES = 4
# Cycles for each value that a transform reads, holds between its two axes or writes. On one core of
# a Xeon with AVX-512 (2026-11-16, 32 to 128 channels) a tile of 6x6 took 250 to 420 ticks on its
# way there and 210 to 270 back, nearly all of it for values that go to the second cache.
VALUE_CYCLES = 2
# Of the time of a convolution that adds up every product, what Winograd's must stay below.
WORTH = 0.9


@dataclass(frozen=True)
class Edge:
    """Along one axis, the values of a tile that are inside the picture, and how many outputs."""

    low: int
    high: int
    outputs: int


@dataclass(frozen=True)
class Strip:
    """Chunks `first` to `last` along one axis, whose tiles have the same edges."""

    first: int
    last: int
    tiles: tuple[Edge, ...]


@dataclass(frozen=True)
class WinogradGroup:
    """A convolution with what follows it, as `ConvolutionGroup`; `tile` is the positions of a
    chunk."""

    stages: tuple[Stage, ...]
    layer: Convolution
    activation: Elementwise | None
    pooling: Pooling | None
    transforms: Transforms
    tile: tuple[int, int]
    blocks: tuple[Block, ...]
    rows: tuple[Strip, ...]
    columns: tuple[Strip, ...]
    unit: int = 1

    @property
    def depth(self) -> int:
        """The channels that a filter sees."""
        return self.stages[0].input_shape[0]

    @property
    def window(self) -> tuple[int, int]:
        return self.pooling.size if self.pooling else (1, 1)

    @property
    def products(self) -> int:
        """Values that a tile has when it is transformed."""
        return len(self.transforms.inputs) ** 2

    @property
    def tiles(self) -> int:
        """Tiles of a chunk, at most."""
        return math.prod(self.tile) // self.transforms.outputs**2

    @property
    def accumulators(self) -> int:
        return self.tiles * self.blocks[0].width

    @property
    def loads_per_fma(self) -> float:
        width = self.blocks[0].width
        return (self.tiles + width) / (self.tiles * width)

    @property
    def distances(self) -> tuple[int, int]:
        """Vectors between two of the transformed values of a chunk's inputs, and of its outputs.
        Odd, so that those of a tile do not all fall into the same lines of the first cache."""
        return (self.depth * self.tiles) | 1, (self.layer.filters * self.tiles) | 1

    @property
    def vectors(self) -> int:
        """Memory that a chunk is worked on in."""
        return self.products * sum(self.distances)

    @property
    def weights(self) -> int:
        """Floats of the biases and the transformed weights."""
        return self.layer.filters * (1 + self.products * self.depth)

    @property
    def executed_flops(self) -> int:
        """FLOP of the products for one image, also of outputs outside; not of the transforms."""
        tiles = _tiles(self.transforms, self.stages[0])
        return 2 * tiles * self.products * self.depth * self.layer.filters


def pays(stage: Stage, transforms: Transforms) -> bool:
    """Whether the algorithm should be faster: the channels, and how well tiles fit the picture."""
    direct = stage.inside_flops / 2 / MULTIPLY_ADDS
    return cycles(transforms, stage) < WORTH * direct


def cycles(transforms: Transforms, stage: Stage) -> float:
    """Of a core, for a vector of images: the products and the transforms."""
    assert isinstance(stage.layer, Convolution)
    channels, filters = stage.input_shape[0], stage.layer.filters
    tiles = _tiles(transforms, stage)
    values, outputs = len(transforms.inputs), transforms.outputs

    def work(rows: int) -> float:
        """A transform there or back."""
        return VALUE_CYCLES * ((values + rows) * values + 2 * values**2)

    multiplied = values**2 * channels * filters / MULTIPLY_ADDS
    return tiles * (multiplied + channels * work(values) + filters * work(outputs))


def _tiles(transforms: Transforms, stage: Stage) -> int:
    """Of a picture."""
    return math.prod(math.ceil(size / transforms.outputs) for size in stage.output_shape[1:])


def pooled_along(pooling: Pooling, transforms: Transforms) -> bool:
    """Whether windows lie in tiles."""
    return all(transforms.outputs % size == 0 for size in pooling.size)


def chunk(outputs: tuple[int, int], window: tuple[int, int], side: int) -> tuple[int, int]:
    """The positions of a chunk: as many tiles of a row as there are, then rows of them."""
    down, across = (
        math.ceil(size // each * each / side) for size, each in zip(outputs, window, strict=True)
    )
    wide = min(across, MOST_TILES)
    return side * min(down, MOST_TILES // wide), side * wide


def winograd_group(
    stages: tuple[Stage, ...], activation: Elementwise | None, pooling: Pooling | None,
    transforms: Transforms, tile: tuple[int, int], target: Target,
) -> WinogradGroup:  # fmt: skip
    """A convolution and what follows it, in chunks of so many positions."""
    layer = stages[0].layer
    assert isinstance(layer, Convolution)
    side = transforms.outputs
    tiles = math.prod(tile) // side**2
    if min(tile) < 1 or any(size % side for size in tile) or tiles > target.registers // 4:
        raise TilewrightError(
            f"{stages[0].name}: a chunk of {tile[0]}x{tile[1]} positions is not possible with "
            f"tiles of {side}x{side} and {target.registers} registers"
        )
    blocks = blocks_of(layer.filters, block_width(layer.filters, tiles, target))
    window = pooling.size if pooling else (1, 1)
    shapes = stages[0].output_shape, stages[0].input_shape
    rows, columns = (
        strips(
            shapes[0][1 + i] // window[i] * window[i], tile[i] // side,
            layer.padding[i], shapes[1][1 + i], transforms,
        )
        for i in range(2)
    )  # fmt: skip
    return WinogradGroup(
        stages, layer, activation, pooling, transforms, tile, blocks, rows, columns
    )


def strips(
    outputs: int, tiles: int, padding: int, size: int, transforms: Transforms
) -> tuple[Strip, ...]:
    """Cut an axis into chunks of so many tiles, and gather neighbours that have the same edges."""
    side, values = transforms.outputs, len(transforms.inputs)
    edges = [
        Edge(
            min(values, max(0, padding - first)),
            max(0, min(values, size + padding - first)),
            min(side, outputs - first),
        )
        for first in range(0, outputs, side)
    ]
    found: list[Strip] = []
    for index in range(math.ceil(len(edges) / tiles)):
        each = tuple(edges[index * tiles : (index + 1) * tiles])
        if found and found[-1].tiles == each:
            found[-1] = Strip(found[-1].first, index + 1, each)
        else:
            found.append(Strip(index, index + 1, each))
    return tuple(found)
