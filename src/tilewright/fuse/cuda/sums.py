"""Who computes which sums of a convolution, and where they read.

A warp's unit of work is 16 columns of the picture, `rows` high, for 8 * `columns` filters. Columns
of the picture are counted through blocks of rows, one block after the other, so that pictures of
any width fill 16 of them; the last block overlaps the one before rather than stick out.
Neighbouring columns, 2g and 2g+1, are rows g and g+8 of an operand: a lane then holds both halves
of a pooling window.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.generations import Generation, Rates
from tilewright.fuse.cuda.operations import Geometry, Window
from tilewright.fuse.cuda.pictures import Picture, Reads, in_pairs, picture, runs, words_beyond
from tilewright.model.layers import Shape

TILE = 16
TYPICAL_TILES = 4
TYPICAL_GROUPS = 2
SCHEDULERS = 4  # of a multiprocessor
NARROW = 4  # filters of a narrow column
# Rows of taps whose products, with those of every row of input, the compiler still writes out one
# by one: 70 it did not, and took 100 times as long (NVRTC 13.2, H200, 2026-11-19).
MOST_TAPS = 32
# Rows of zeros that are left out at least, above and below, and the share of products that that
# spares. With one row each, `resnet20` and `deep` ran at 0.83 to 1.02 times the speed (H200,
# 2026-11-18).
LEAST_ROWS = 2
LEAST_SPARED = 0.03
Tile = list[tuple[int, int] | None]
To = Literal["TW_TO_HALVES", "TW_TO_OPERANDS", "TW_TO_FLOATS"]
# How much a warp's own time counts beside all warps', when units are chosen: several are tried.
WEIGHTS = (0.1, 0.5, 2.0)


@dataclass(frozen=True)
class Shares:
    """How a warp's unit of a convolution's work is cut.

    If they are `wide`, so many warps of a group, a multiple of four, all have the same to do at any
    time, in whole steps (`warpgroups`): there may be tiles without sums. Columns of the picture are
    rows of an operand one after the other then (`in_turn`), if none is pooled and that has fewer
    bank conflicts.
    """

    geometry: Geometry
    arithmetic: Arithmetic
    rows: int
    columns: int
    wide: int = 0
    in_turn: bool = False
    twice: bool = False  # a lane has two sums of each, without tensor cores (`sums.cuh`)

    def __hash__(self) -> int:
        return hash((self.geometry, self.rows, self.columns, self.wide, self.twice))

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
            yield group if self.in_turn else group[0::2] + group[1::2]

    @cached_property
    def tile_count(self) -> int:
        tiles = -(-self.blocks * self.needed[1] // TILE)
        return -(-tiles // self.wide) * self.wide if self.wide else tiles

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
        """Columns of filters, a narrow one counted as half."""
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
    def tops(self) -> int:
        """Tiles that are in the first block of rows alone: the first of all."""
        return self.needed[1] // TILE

    @property
    def bottoms(self) -> int:
        """The first of the tiles that are in the last block of rows alone."""
        return -(-(self.blocks - 1) * self.needed[1] // TILE)

    @cached_property
    def left_out(self) -> tuple[int, int]:
        """Rows of zeros above and below a picture that tiles at its edges do not read, on tensor
        cores, if that spares enough.

        Such tiles have code of their own. Without tensor cores that is so long that it did not pay
        where it spared 6 % (cifar10, H200, 2026-11-18); that of operands in parts is long, too, and
        was not timed.
        """
        arithmetic = self.arithmetic
        if not arithmetic.tensor or arithmetic.parts > 1 or self.wide or self.blocks == 1:
            return 0, 0
        window = self.geometry.window
        last = (self.needed[0] - self.rows) * window.stride[0] - window.padding[0]
        above = min(window.padding[0], self.input_rows)
        below = max(0, min(last + self.input_rows - self.geometry.source[1], self.input_rows))
        rows = [row * window.stride[0] + tap
                for row in range(self.rows) for tap in range(window.taps[0])]  # fmt: skip
        spared = self.tops * sum(each < above for each in rows) + (
            self.tile_count - self.bottoms
        ) * sum(each >= self.input_rows - below for each in rows)
        pays = spared >= LEAST_SPARED * self.tile_count * len(rows)
        return (above, below) if pays and min(above, below) >= LEAST_ROWS else (0, 0)

    @property
    def registers(self) -> int:
        """Of a lane: sums, and of a step either all weights and a row of input or vice versa."""
        sums = int(4 * self.rows * self.full_columns)
        return (2 if self.twice else 1) * sums + self._operands[self.rows_first]

    @property
    def rows_first(self) -> bool:
        """Whether all rows of a step are held, and weights read one after the other."""
        weights_held, rows_held = self._operands
        many = self.geometry.window.taps[0] > MOST_TAPS
        return not self.arithmetic.tensor and (rows_held < weights_held or many)

    @property
    def _operands(self) -> tuple[int, int]:
        """Registers for a step's operands: all weights held, or all rows."""
        parts = self.arithmetic.parts
        # Words of weights of a column that a lane holds.
        each = parts * (2 if self.arithmetic.tensor else 4)
        weights = self.geometry.window.taps[0] * self.columns * each
        return weights + 8 * parts, 4 * parts * self.input_rows + 2 * each

    def busiest(self, warps: int, groups: int) -> float:
        """Units of an image that the busiest of the four schedulers has, times four."""
        return _busiest(self.units, warps, groups)

    def work(
        self, steps: float, rates: Rates, warps: int, groups: int, together: bool = False
    ) -> float:
        """Cycles that all units of an image take of a multiprocessor, each warp's or those of four
        warps `together`."""
        taps_y = self.geometry.window.taps[0]
        products = steps * taps_y * self.rows
        results = rates.result * self.rows * self.columns
        reads = rates.read * steps * 4 * self.input_rows
        if together:
            # Of an instruction's cycles a quarter of a column's are its own.
            each = rates.together * products * (self.columns + 0.25)
            return self.units * (each + reads + results)
        product = rates.twice if self.twice else rates.product
        each = product * products * self.full_columns
        each_weight = 2 * rates.read if rates.weights is None else rates.weights
        weights = each_weight * steps * taps_y * self.columns
        return self.busiest(warps, groups) * (each + reads + weights + results)

    def wait(
        self,
        steps: float,
        warps: int,
        rates: Rates,
        together: bool = False,
        distant: bool = False,
    ) -> float:
        """Cycles until the warp with most to do is done; weights may be `distant`."""
        products = steps * self.geometry.window.taps[0] * self.rows * self.full_columns
        own_step = rates.own_step + (rates.own_distant if distant else 0)
        own_product = rates.own_together if together else rates.own_product
        each = own_product * products + own_step * steps
        return -(-self.units // warps) * (each + rates.own_unit)


@lru_cache(maxsize=20_000)
def _busiest(units: int, warps: int, groups: int) -> float:
    """Warps go to schedulers in turn, group by group: if 4 of a group have 5 units, one scheduler
    has two, of every group; of groups of two warps the even ones go to two schedulers, the odd ones
    to the others."""
    own = [-(-(units - warp) // warps) for warp in range(warps)]
    loads = [sum(own[number % warps] for number in range(first, warps * groups, SCHEDULERS))
             for first in range(SCHEDULERS)]  # fmt: skip
    return SCHEDULERS * max(loads) / groups


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
    tried = _tried(geometry, arithmetic, generation, warps, registers)
    return min(tried, key=lambda one: (one.work + weight * one.wait, one.shares.units)).shares


class _Tried(NamedTuple):
    """Units, and the cycles of all warps and of the one that has most to do."""

    shares: Shares
    work: float
    wait: float


# The same for all weights.
@lru_cache(maxsize=1000)
def _tried(
    geometry: Geometry, arithmetic: Arithmetic, generation: Generation, warps: int, registers: int
) -> list[_Tried]:
    words = arithmetic.words(geometry.source[0]) * geometry.window.taps[1]
    steps = max(0.5, words / arithmetic.step)
    rates = generation.rates(arithmetic)
    return [
        _Tried(
            one, one.work(steps, rates, warps, TYPICAL_GROUPS), one.wait(steps, warps, rates)
        )
        for one in _units(geometry, arithmetic, registers, generation.other_registers)
    ]  # fmt: skip


@lru_cache(maxsize=1000)
def _units(
    geometry: Geometry, arithmetic: Arithmetic, registers: int, other_registers: int
) -> list[Shares]:
    """All that so many registers hold, and the smallest."""
    most_columns = -(-geometry.summed[0] // 8)
    # Four columns, or the last two, have all sums of some filters, if they are folded.
    together = most_columns if geometry.folded and most_columns % 4 else 4 if geometry.folded else 1
    least = 2 if geometry.pool else 1
    smallest = Shares(geometry, arithmetic, least, together, in_turn=geometry.folded)
    found = [smallest]
    most_rows = min(smallest.needed[0], registers // 4)  # each takes four registers at least
    for rows in range(least, most_rows + 1, least):
        for columns in range(together, most_columns + 1, together):
            one = Shares(geometry, arithmetic, rows, columns, in_turn=geometry.folded)
            if one.registers + other_registers > registers:
                break
            found.append(one)
            # Where weights are held it gained nothing (ece408, H200, 2026-11-18).
            two = replace(one, twice=True)
            if one.rows_first and two.registers + other_registers <= registers:
                found.append(two)
    return found


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
        shares.reads, loaded, unaligned, shares.wide > 0,
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


def runs_of(shares: Shares, source: Picture) -> tuple[int, int, int]:
    """Runs of words in a row of taps, and the full and half steps each of them takes."""
    reads = reads_of(shares, source)
    taps_x = shares.geometry.window.taps[1]
    return runs(shares.arithmetic, source, taps_x, reads, shares.wide > 0)


def pairs_of(shares: Shares, source: Picture) -> bool:
    """Whether a lane reads two neighbouring words of a row at once for tensor cores."""
    return in_pairs(shares.arithmetic, source, reads_of(shares, source), shares.wide > 0)


def beyond_of(shares: Shares, source: Picture) -> int:
    """Words after a run's last that its steps read, too."""
    reads = reads_of(shares, source)
    taps_x = shares.geometry.window.taps[1]
    return words_beyond(shares.arithmetic, source, taps_x, reads, shares.wide > 0)
