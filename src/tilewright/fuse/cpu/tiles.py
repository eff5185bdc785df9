"""Register tiles: how an axis of positions and a row of channels are cut, and what a tile costs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

# What AVX2 and AVX-512 cores of the last ten years do in a cycle, and how long a sum must wait for
# the one before it.
MULTIPLY_ADDS, LOADS, LATENCY = 2, 2, 4
# Floats of the widest vectors, for which a core has two units in all.
WIDE_LANES = 16
# Bytes of weights that stay in the second cache from tile to tile, for each lane: CPUs with AVX-512
# have 1 MB and more of it, others half of that. What does not stay comes from farther away, so many
# bytes in a cycle; a few for each tap come as slowly as so many more, for then fewer are under way.
# (Chosen: so resnet10's layers of 256 and 512 channels get tiles of 2x4 positions, with which 4
# images take 11 % less time than with 1x4, and than with 4x4; a core of an AMD EPYC with AVX-512,
# 2026-11-18.)
STAYING_BYTES_A_LANE = 40_000
FAR_BYTES_A_CYCLE, FEW_FAR_BYTES = 16, 256
# Images for which weights come once that then stay: tiles are chosen for so many.
TOGETHER = 4
# Bytes of a block's weights that stay in the first cache from tile to tile. Others come from the
# second: for each tap a cycle more for so many bytes. (Chosen: of the tiles of 14 convolutions with
# lanes that are channels, 6 to 31 each, those that are chosen so take 0.9 % longer than the fastest
# on average, 4.9 without that and 14 at most; a core of an AMD EPYC of the fifth generation, whose
# AVX-512 multiplies two whole vectors in a cycle. With AVX2 the same tiles are chosen, but for one.
# 2026-11-19.)
NEAR_BYTES, NEAR_BYTES_A_CYCLE = 32_768, 128


@dataclass(frozen=True)
class Target:
    """What the schedule must know of a CPU: floats in a vector, and vector registers."""

    lanes: int
    registers: int

    @property
    def register(self) -> str:
        """LLVM's letter for a vector register: ARM's, which has 32 of 4 floats each, or x86's."""
        return "w" if (self.lanes, self.registers) == (4, 32) else "v"


@dataclass(frozen=True)
class Span:
    """Tiles `first` to `last` along one axis: for each position of a tile, its valid taps.

    `taps[d]` is the range of kernel taps inside the image for the tile's position `d`.
    """

    first: int
    last: int
    taps: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Border:
    """Pooling windows, or single positions, `first` to `last` along one axis, each a tile of its
    own; their valid taps are found in the run."""

    first: int
    last: int


@dataclass(frozen=True)
class Block:
    """`count` blocks of `width` items (output channels, or vectors of them) from item `first`.

    With `packed` above 1, the last item has so few channels that its vector holds them as often,
    each time for another position.
    """

    first: int
    width: int
    count: int
    packed: int = 1

    def sums(self, positions: int) -> int:
        """Vectors that a tile of so many positions adds up."""
        return positions * (self.width - 1) + math.ceil(positions / self.packed)


def block_width(items: int, positions: int, target: Target) -> int:
    """Items in a tile: as many as registers allow, then no more blocks than needed.

    A tile needs its sums, a register for each item's weights, and one activation.
    """
    most = max(1, (target.registers - 1) // (positions + 1))
    blocks = math.ceil(items / most)
    return math.ceil(items / blocks)


def blocks_of(items: int, width: int) -> tuple[Block, ...]:
    """Blocks of `width` items, then of one fewer, so that none is much emptier than another."""
    count = math.ceil(items / width)
    narrow = count * width - items
    if narrow > count:  # one fewer in each is not enough: full blocks and a remainder
        full, rest = divmod(items, width)
        blocks = [Block(0, width, full)]
        return tuple(blocks + ([Block(full * width, rest, 1)] if rest else []))
    wide = count - narrow
    blocks = [Block(0, width, wide)] if wide else []
    if narrow:
        blocks.append(Block(wide * width, width - 1, narrow))
    return tuple(blocks)


def packed_blocks(channels: int, positions: int, target: Target) -> tuple[Block, ...]:
    """As few blocks of vectors of channels as the registers allow.

    What is left over for the last vector is packed where that saves cycles. It takes two registers
    more, for the activations that are put together. That is done by the units that multiply where
    vectors are wide, and saves nothing there.
    """
    items = math.ceil(channels / target.lanes)
    left = channels % target.lanes
    packed = min(target.lanes // left, positions) if left and target.lanes < WIDE_LANES else 1
    packed = 1 << packed.bit_length() - 1  # a power of two
    # No wider block than this fits, packed or not.
    plain = target.registers - 1
    most = max(plain, plain - 2 + positions - math.ceil(positions / packed)) // (positions + 1)
    for count in range(math.ceil(items / max(1, most)), items + 1):
        blocks = _last_packed(blocks_of(items, math.ceil(items / count)), packed, positions)
        needed = [b.sums(positions) + b.width + (3 if b.packed > 1 else 1) for b in blocks]
        if max(needed) <= target.registers:
            break
    return blocks


def _last_packed(blocks: tuple[Block, ...], packed: int, positions: int) -> tuple[Block, ...]:
    """The same with the very last block on its own, and packed, if that makes it faster."""
    last = blocks[-1]
    begin = last.first + last.width * (last.count - 1)
    plain, single = Block(begin, last.width, 1), Block(begin, last.width, 1, packed)
    if tap_cycles(positions, single) >= tap_cycles(positions, plain):
        return blocks
    rest = [Block(last.first, last.width, last.count - 1)] if last.count > 1 else []
    return (*blocks[:-1], *rest, single)


def last_alone(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The same blocks, the very last one by itself."""
    last = blocks[-1]
    if last.count == 1:
        return blocks
    end = replace(last, first=last.first + last.width * (last.count - 1), count=1)
    return (*blocks[:-1], replace(last, count=last.count - 1), end)


def spans(
    outputs: int, tile: int, kernel: int, stride: int, padding: int, size: int, window: int = 1,
    dilation: int = 1,
) -> tuple[Span, ...]:  # fmt: skip
    """Cut an axis into tiles, and gather neighbours that have the same valid taps.

    Positions that do not fill a tile are a smaller one; those that do not fill a pooling window
    are left out.
    """

    def taps(position: int) -> tuple[int, int]:
        start = position * stride - padding
        low, high = (math.ceil(inside / dilation) for inside in (-start, size - start))
        low, high = max(0, low), min(kernel, high)
        return (low, high) if low < high else (0, 0)

    found: list[Span] = []
    used = outputs // window * window
    for index in range(math.ceil(used / tile)):
        valid = tuple(taps(p) for p in range(index * tile, min(index * tile + tile, used)))
        if found and found[-1].taps == valid:
            found[-1] = Span(found[-1].first, index + 1, valid)
        else:
            found.append(Span(index, index + 1, valid))
    return tuple(found)


def with_borders(
    spans: tuple[Span, ...], tile: int, kernel: int, window: int
) -> tuple[Span | Border, ...]:
    """The same in a few pieces: tiles with all taps inside the image, windows before and behind."""
    found: list[Span | Border] = []
    for span in spans:
        if all(taps == (0, kernel) for taps in span.taps):
            found.append(span)
            continue
        first = span.first * tile // window
        last = ((span.last - 1) * tile + len(span.taps)) // window
        if found and isinstance(found[-1], Border):
            first = found.pop().first
        found.append(Border(first, last))
    return tuple(found)


def tap_cycles(positions: int, block: Block) -> float:
    """What one tap of a tile costs: arithmetic, loads or waiting, whichever takes longest.

    Loads are never quite for nothing: of two tiles that are equal else, the one with fewer is
    the faster.
    """
    loads = positions + block.width
    return max(block.sums(positions) / MULTIPLY_ADDS, loads / LOADS, LATENCY) + loads / 10


def near_cycles(weights: int, depth: int) -> float:
    """What one tap of a tile costs besides, whose block has so many weights for each of `depth`."""
    stay = 4 * weights * depth <= NEAR_BYTES
    return 0 if stay else 4 * weights / NEAR_BYTES_A_CYCLE


def weights_stay(weights: int, target: Target) -> bool:
    """Whether so many weights stay in a core's second cache."""
    return 4 * weights <= STAYING_BYTES_A_LANE * target.lanes


def far_taps(
    blocks: Sequence[Block], unit: int, depth: int, passes: int, target: Target
) -> Iterator[tuple[int, int, bool]]:
    """How often a tap's weights of a block come from beyond the second cache, how many, and whether
    they then stay, where one block after the other goes over the whole picture in so many tiles;
    `depth` are those of a filter."""
    if weights_stay(sum(unit * block.width * block.count for block in blocks) * depth, target):
        return
    for block in blocks:
        weights = unit * block.width
        stay = weights_stay(weights * depth, target)
        yield block.count * (1 if stay else passes), weights, stay


def best_tile(
    height: int, width: int, channels: int, depth: int, target: Target,
    window: tuple[int, int] = (1, 1),
) -> tuple[int, int]:  # fmt: skip
    """The tile of whole windows that takes the fewest cycles over a picture of so many windows.

    For lanes that are channels. `depth` are a filter's weights.
    """

    def cost(tile: tuple[int, int]) -> float:
        positions = math.prod(tile) * math.prod(window)
        blocks, tiles = packed_blocks(channels, positions, target), _tiles(height, width, tile)
        far = sum(
            count * (FEW_FAR_BYTES + 4 * weights) / (TOGETHER if stay else 1)
            for count, weights, stay in far_taps(blocks, target.lanes, depth, tiles, target)
        )
        near = sum(
            tiles * block.count * near_cycles(target.lanes * block.width, depth) for block in blocks
        )
        return (
            far / FAR_BYTES_A_CYCLE
            + near
            + sum(
                rows * columns * block.count * tap_cycles(ty * tx * math.prod(window), block)
                for block in blocks
                for rows, ty in _pieces(height, tile[0])
                for columns, tx in _pieces(width, tile[1])
            )
        )

    most = max(1, (target.registers - 2) // math.prod(window))
    tiles = [
        (ty, tx)
        for ty in range(1, min(height, most, 4) + 1)
        for tx in range(1, min(width, most // ty) + 1)
    ]
    tile = min(tiles, key=cost)
    return tile[0] * window[0], tile[1] * window[1]


def _tiles(height: int, width: int, tile: tuple[int, int]) -> int:
    return math.ceil(height / tile[0]) * math.ceil(width / tile[1])


def _pieces(size: int, tile: int) -> list[tuple[int, int]]:
    """How many tiles of which length an axis has."""
    full, rest = divmod(size, tile)
    return [(full, tile)] * (full > 0) + [(1, rest)] * (rest > 0)
