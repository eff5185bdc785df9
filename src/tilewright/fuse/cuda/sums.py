"""Who computes which sums of a convolution, and where they read.

A warp's unit of work is 16 columns of the picture, `rows` high, for 8 * `columns` filters. Columns
of the picture are counted through blocks of rows, one block after the other, so that pictures of
any width fill 16 of them; the last block overlaps the one before rather than stick out.
Neighbouring columns, 2g and 2g+1, are rows g and g+8 of an operand: a lane then holds both halves
of a pooling window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.generations import Generation, Rates
from tilewright.fuse.cuda.operations import Geometry, Window
from tilewright.fuse.cuda.pictures import Picture, Reads, picture
from tilewright.model.layers import Shape

TILE = 16
TYPICAL_TILES = 4
NARROW = 4  # filters of a narrow column
Tile = list[tuple[int, int] | None]
To = Literal["TW_TO_HALVES", "TW_TO_OPERANDS", "TW_TO_FLOATS"]
# How much a warp's own time counts beside all warps', when units are chosen: several are tried.
WEIGHTS = (0.1, 0.5, 2.0)


@dataclass(frozen=True)
class Shares:
    """How a warp's unit of a convolution's work is cut."""

    geometry: Geometry
    arithmetic: Arithmetic
    rows: int
    columns: int

    @property
    def needed(self) -> tuple[int, int]:
        """Rows and columns of sums that anything depends on."""
        _, height, width = self.geometry.summed
        if self.geometry.pool:
            return height // 2 * 2, width // 2 * 2
        return height, width

    @cached_property
    def blocks(self) -> int:
        """Blocks of rows; the last begins early enough not to stick out."""
        return -(-self.needed[0] // self.rows)

    @property
    def tiles(self) -> Iterator[Tile]:
        """The top sums (y, x) of the 16 columns of each tile, in the order of an operand's rows."""
        height, width = self.needed
        for first in range(0, self.tile_count * TILE, TILE):
            places = [divmod(column, width) for column in range(first, first + TILE)]
            group: Tile = [
                (min(block * self.rows, height - self.rows), x) if block < self.blocks else None
                for block, x in places
            ]
            yield group[0::2] + group[1::2]

    @cached_property
    def tile_count(self) -> int:
        return -(-self.blocks * self.needed[1] // TILE)

    @cached_property
    def reads(self) -> list[Reads]:
        """The pixels that the rows of the first few tiles begin at; the others are like them."""
        return [self.read(tile) for tile in itertools.islice(self.tiles, TYPICAL_TILES)]

    def read(self, tile: Tile) -> Reads:
        """The pixels that the rows of a tile begin at."""
        stride_y, stride_x = self.geometry.window.stride
        return [(y * stride_y, x * stride_x) for y, x in (top or (0, 0) for top in tile)]

    @property
    def filters(self) -> int:
        return self.geometry.summed[0]

    @cached_property
    def splits(self) -> int:
        """How many units share the filters of a tile."""
        return -(-self.filters // (8 * self.columns))

    @property
    def narrow(self) -> bool:
        """Whether the last column has 4 filters or fewer, one of each lane, and no others.

        Tensor cores have no such columns.
        """
        return not self.arithmetic.tensor and self.splits == 1 and 0 < self.filters % 8 <= NARROW

    @property
    def full_columns(self) -> float:
        """Columns of filters, a narrow one counted as half. Estimates, which were fitted without
        such, count it as a whole one: plans that they chose by halves were slower."""
        return self.columns - 0.5 if self.narrow else self.columns

    @cached_property
    def all_columns(self) -> int:
        return self.splits * self.columns

    @property
    def units(self) -> int:
        return self.tile_count * self.splits

    @property
    def input_rows(self) -> int:
        return (self.rows - 1) * self.geometry.window.stride[0] + self.geometry.window.taps[0]

    @property
    def registers(self) -> int:
        """Of a lane: sums, and of a step either all weights and a row of input or vice versa."""
        return self.rows * self.columns * 4 + self._operands[self.rows_first]

    @property
    def rows_first(self) -> bool:
        """Whether all rows of a step are held, and weights read one after the other."""
        weights_held, rows_held = self._operands
        return not self.arithmetic.tensor and rows_held < weights_held

    @property
    def _operands(self) -> tuple[int, int]:
        """Registers for a step's operands: all weights held, or all rows."""
        each = 2 if self.arithmetic.tensor else 4  # words of weights of a column that a lane holds
        weights = self.geometry.window.taps[0] * self.columns * each
        return weights + 8, 4 * self.input_rows + 2 * each

    def work(self, steps: float, rates: Rates) -> float:
        """Cycles that all units of an image take of a multiprocessor."""
        taps_y = self.geometry.window.taps[0]
        products = steps * taps_y * self.rows * self.columns
        reads = steps * (4 * self.input_rows + 2 * taps_y * self.columns)
        results = self.rows * self.columns
        each = rates.product * products + rates.read * reads + rates.result * results
        return self.units * each

    def wait(self, steps: float, warps: int, rates: Rates) -> float:
        """Cycles until the warp with most to do is done."""
        return -(-self.units // warps) * self.own(steps, rates)

    def own(self, steps: float, rates: Rates) -> float:
        """Cycles that a unit takes its warp."""
        products = steps * self.geometry.window.taps[0] * self.rows * self.columns
        return rates.own_product * products + rates.own_step * steps + rates.own_unit


@lru_cache(maxsize=20_000)
def share(
    geometry: Geometry,
    arithmetic: Arithmetic,
    generation: Generation,
    warps: int,
    registers: int,
    weight: float,
) -> Shares:
    """The best units for so many warps of so many registers."""
    best, least = None, (math.inf, 0)
    for one, units, work, each in _units(geometry, arithmetic, generation, registers):
        cost = work + weight * (-(-units // warps) * each), units
        if best is None or cost < least:
            best, least = one, cost
    assert best is not None
    return best


@lru_cache(maxsize=5_000)
def _units(
    geometry: Geometry, arithmetic: Arithmetic, generation: Generation, registers: int
) -> list[tuple[Shares, int, float, float]]:
    """All units that so many registers hold: how many there are, the cycles that all of them take
    of a multiprocessor, and each of a warp."""
    smallest = Shares(geometry, arithmetic, 2 if geometry.pool else 1, 1)
    words = arithmetic.words(geometry.source[0]) * geometry.window.taps[1]
    steps = max(0.5, words / arithmetic.step)
    candidates = [smallest]
    most_columns = -(-smallest.filters // 8)
    most_rows = min(smallest.needed[0], registers // 4)  # each takes four registers at least
    for rows in range(smallest.rows, most_rows + 1, smallest.rows):
        for columns in range(1, most_columns + 1):
            one = Shares(geometry, arithmetic, rows, columns)
            if one.registers + generation.other_registers > registers:
                break
            candidates.append(one)
    rates = generation.rates(arithmetic.tensor)
    return [(one, one.units, one.work(steps, rates), one.own(steps, rates)) for one in candidates]


@dataclass(frozen=True)
class Sink:
    """Where results go: `place` gives the word of a position's first channel.

    `to` is how two neighbouring channels are written: as the two halves of a word, as two
    operands, or as floats that are `plane` words apart.
    """

    to: To
    place: Callable[[int, int], int]
    row: int
    pixel: int
    plane: int = 1


def into(target: Picture, arithmetic: Arithmetic, rounded: bool) -> Sink:
    """Into a picture that is read as operands (`rounded`) or value by value."""
    to: To
    if arithmetic.per_word == 2 and not target.floats:
        to = "TW_TO_HALVES"
    else:
        to = "TW_TO_OPERANDS" if rounded and not target.floats else "TW_TO_FLOATS"
    return Sink(to, target.inside, target.row, target.pitch)


def planes(shape: Shape) -> Sink:
    """The network's output: floats, channel by channel."""
    _, height, width = shape
    return Sink("TW_TO_FLOATS", lambda y, x: y * width + x, width, 1, height * width)


@lru_cache(maxsize=20_000)
def source_picture(
    shares: Shares, loaded: bool, unaligned: float, around: tuple[int, int] | None = None
) -> Picture:
    """How the input of these sums lies; for `loaded` and `unaligned` see `picture`.

    `around`: zeros on both sides, if there are more than these sums need.
    """
    geometry = shares.geometry
    padding = geometry.window.around if around is None else around
    return picture(
        shares.arithmetic, geometry.source, padding, geometry.window.taps[1],
        shares.reads, loaded, unaligned,
    )  # fmt: skip


def offset(source: Picture, window: Window) -> tuple[int, int]:
    """From the corner with a picture's zeros to where the first window begins."""
    return source.padding[0] - window.padding[0], source.padding[1] - window.padding[1]


@lru_cache(maxsize=20_000)
def reads_of(shares: Shares, source: Picture) -> list[Reads]:
    """The pixels of a picture that the rows of the first few tiles begin at."""
    down, right = offset(source, shares.geometry.window)
    if (down, right) == (0, 0):
        return shares.reads
    return [[(y + down, x + right) for y, x in read] for read in shares.reads]
