"""How kernels for fully connected layers in panels divide the work, and which way is fastest.

Which of the ways for many images is taken is estimated from `generations.PANELS`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from tilewright.fuse.cuda.generations import PANELS, PanelRates

PANEL = 256  # rows
BAND = 64  # outputs
TILE = 16  # images
CHUNK_BYTES = 128  # of a row
FETCHING = 128  # threads of a block
LEFT = 24  # registers of each of them
REGISTERS = 65536  # of a multiprocessor
# Of all multiprocessors those that work at a time where four blocks and more share a sum: a cluster
# of them finds room for itself among some six. Measured: 96 of an H200's 132 blocks.
CLUSTERED = 8 / 11


@dataclass(frozen=True)
class Few:
    """Blocks of `tiles` x 16 images and `columns` x 8 outputs, whose warps divide the sum."""

    tiles: int
    columns: int
    warps: int
    unroll: int  # turns of a warp whose reads are under way together
    rows: int = 16  # of a tile that are computed where there are no tensor cores
    many: bool = False  # there, lanes are images, not outputs

    def grid(self, images: int, outputs: int) -> tuple[int, int, int]:
        return -(-outputs // (8 * self.columns)), -(-images // (TILE * self.tiles)), 1


@dataclass(frozen=True)
class Many:
    """Blocks of `bands` x 64 outputs and `wide` images, `blocks` of them a multiprocessor.

    Up to `stages` chunks are in flight. `splits` groups of warps divide the sums of a band, and
    `parts` blocks the sums of a block. Or `across` blocks with the same images read them once.
    Without tensor cores a band may have fewer outputs: a thread has `each` of them, of two warps.
    """

    bands: int
    wide: int
    stages: int
    blocks: int = 1
    splits: int = 1
    parts: int = 1
    across: int = 1
    tall: int = 1  # bands of a group of warps, where sums are not divided
    each: int = 8

    @property
    def outputs(self) -> int:
        """Of a block."""
        return self.bands * self.band

    @property
    def band(self) -> int:
        return BAND // 8 * self.each

    @property
    def size(self) -> float:
        """Sums of a block, in columns of 64."""
        return self.outputs / BAND * self.wide

    def sums(self, tensor: bool) -> int:
        """Of a thread, and of a band."""
        return self.wide // 2 if tensor else self.wide // 8 * self.each

    @property
    def bytes(self) -> int:
        """Shared memory: the ring; when it is empty sums are gathered there, and behind them, or
        where there are none, results in fp16 put together."""
        ring = CHUNK_BYTES * self.stages * (self.outputs + self.wide)
        return max(ring, self.gathered_bytes)

    @property
    def gathered_bytes(self) -> int:
        shared = self.splits * self.parts > 1
        return 4 * self.outputs * self.wide * self.splits if shared else 0

    def fits(self, outputs: int) -> bool:
        """Whether no block has outputs of two panels: their weights come in one copy."""
        return PANEL % self.outputs == 0 or outputs <= self.outputs

    def threads(self, tensor: bool) -> int:
        return FETCHING + (128 if tensor else 64) * self.bands * self.splits // self.tall

    def registers(self, tensor: bool) -> int:
        """Of a thread that adds up, when those that fetch have given theirs away."""
        threads = self.threads(tensor)
        each = REGISTERS // self.blocks // threads // 8 * 8
        more = (each - LEFT) * FETCHING // (threads - FETCHING) // 8 * 8
        return min(240, each + more)

    def grid(self, images: int, outputs: int) -> tuple[int, int, int]:
        """Of whole clusters."""
        across = -(-outputs // (self.outputs * self.across)) * self.across
        return across, -(-images // self.wide), self.parts


@dataclass(frozen=True)
class Into:
    """Rows into panels."""


How = Few | Many | Into


# Those that are tried for many images, with tensor cores and without.
WAYS = {
    True: (
        *(Many(1, wide, 8, splits=2) for wide in (16, 32, 48, 64)),
        *(Many(1, wide, 8, splits=2, parts=2) for wide in (32, 64)),
        *(Many(1, wide, 6, splits=2, across=2) for wide in (96, 128)),
        Many(1, 160, 6, splits=2),
        Many(1, 32, 8, parts=4),
        *(Many(1, 64, 8, parts=parts) for parts in (4, 8)),
        *(Many(2, 64, 6, parts=parts) for parts in (2, 4, 8)),
        *(Many(2, wide, 4) for wide in (96, 128)),
        Many(3, 32, 8, parts=4),
        *(Many(3, 64, 6, parts=parts) for parts in (2, 4, 8)),
        Many(3, 80, 6),
        Many(3, 160, 4, parts=2),
        Many(4, 64, 5, parts=4),
        *(Many(4, wide, 4, tall=2) for wide in (80, 104, 128, 152)),
    ),
    # Two sums of each, and what they are made of, leave room for 80 of them.
    False: (
        *(Many(1, wide, 8, splits=4) for wide in (32, 48, 64)),
        *(Many(1, wide, 8, splits=4, parts=2) for wide in (32, 64)),
        Many(1, 32, 8, splits=2, parts=2),
        Many(1, 64, 8, splits=2, parts=4),
        *(Many(2, wide, 6, splits=2) for wide in (48, 64, 80)),
        *(Many(4, wide, 4) for wide in (48, 64, 72, 80)),
        *(Many(4, wide, 5, each=5) for wide in (64, 80, 96)),
        Many(4, 64, 5, each=6),
    ),
}


@lru_cache(maxsize=1000)
def fastest(tensor: bool, images: int, outputs: int, turns: int, processors: int) -> Many:
    """The way for many images that promises to be fastest."""
    return min(
        (way for way in WAYS[tensor] if way.parts <= turns and way.fits(outputs)),
        key=lambda way: cycles(way, images, outputs, turns, processors, PANELS[tensor]),
    )


def few_cycles(
    how: Few, images: int, outputs: int, pieces: int, processors: int, rates: PanelRates
) -> float:
    """About how long a launch takes that reads so many pieces of a row."""
    turns = -(-pieces // (4 * how.warps))
    load = max(1.0, math.prod(how.grid(images, outputs)) / processors)
    column = rates.few_column + rates.few_product * how.rows * how.tiles
    return rates.launch + turns * (rates.few_turn + load * how.columns * column)


def cycles(
    how: Many, images: int, outputs: int, turns: int, processors: int, rates: PanelRates
) -> float:
    """About how long a launch takes."""
    size = how.size
    rows = how.outputs + how.wide / how.across
    copies = 2 * rates.copy + rows * CHUNK_BYTES / rates.copied
    each = how.blocks * max(size * rates.work, copies) + rates.turn
    block = size * how.blocks * rates.put
    if how.splits * how.parts > 1:
        block += rates.gather * size * how.splits / BAND
    if how.parts > 1:
        block += rates.parts
    if how.across > 1:
        block += rates.cluster
    room = processors * how.blocks * (CLUSTERED if how.parts > 2 else 1)
    waves = math.ceil(math.prod(how.grid(images, outputs)) / room)
    return rates.launch + waves * (block + -(-turns // how.parts) * each)
