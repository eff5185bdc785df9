"""How a picture lies in shared memory: words, channels last, with the zeros around it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.model.layers import Shape

BANKS = 32
# What a half step costs of a full one, on tensor cores: 1.02 cycles of 1.52 (H200, 2026-11-16).
HALF_STEP = 0.67
# What a turn of a read of pairs counts for beside one of single words. Chosen.
PAIRED = 0.9
# A step may read this far past the last pixel; what it finds there meets weights of zero, and must
# be a number.
SLACK = 8

# The pixels, (y, x) from the corner with the zeros, that 16 rows of an operand begin at.
Reads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Picture:
    """`floats`: one float32 a word whatever the arithmetic, for what must not be rounded.

    A `tight` picture has its pixels follow each other half by half, without a gap, although a pixel
    has an odd number of halves. A second copy, `copy` words further and one half earlier, has the
    pixels that begin in the middle of a word.
    """

    channels: int
    height: int
    width: int
    words: int  # that hold a pixel's channels
    pitch: int  # words from pixel to pixel; 0 if tight
    row: int  # words from row to row
    padding: tuple[int, int] = (0, 0)
    floats: bool = False
    tight: bool = False

    @property
    def rows(self) -> int:
        return self.height + 2 * self.padding[0]

    @property
    def across(self) -> int:
        return self.width + 2 * self.padding[1]

    @property
    def copy(self) -> int:
        return self.rows * self.row + SLACK if self.tight else 0

    @property
    def size(self) -> int:
        """Words it takes."""
        size = self.rows * self.row + SLACK
        return -(-(size * (2 if self.tight else 1)) // 4) * 4

    @property
    def contiguous(self) -> bool:
        """Whether the words of neighbouring pixels follow each other."""
        return self.tight or self.pitch == self.words

    def place(self, y: int, x: int) -> int:
        """Where a pixel begins, counted from the corner with the zeros."""
        if not self.tight:
            return y * self.row + x * self.pitch
        half = x * self.channels
        return y * self.row + (self.copy + (half - 1) // 2 if half % 2 else half // 2)

    def inside(self, y: int, x: int) -> int:
        """Where a pixel of the picture itself begins."""
        return self.place(y + self.padding[0], x + self.padding[1])


def plain(
    arithmetic: Arithmetic, shape: Shape, floats: bool = False, padding: tuple[int, int] = (0, 0)
) -> Picture:
    """A picture without gaps inside, and with no other zeros around it than are asked for."""
    channels, height, width = shape
    words = channels if floats else arithmetic.words(channels)
    row = (width + 2 * padding[1]) * words
    return Picture(channels, height, width, words, words, row, padding, floats=floats)


def picture(
    arithmetic: Arithmetic,
    shape: Shape,
    padding: tuple[int, int],
    taps_x: int,
    reads: Sequence[Reads],
    loaded: bool,
    unaligned: float,
    whole: bool = False,
) -> Picture:
    """The picture that a sum reads so, with as few steps and bank conflicts as can be had.

    The pixels that 8 rows of an operand read at once should lie in different banks, which depends
    on the words between pixels and between rows. `loaded` pictures come from device memory value
    by value, and may be tight; `unaligned` is what reads of single words cost against reads of two.
    Steps may have to be `whole`.
    """
    channels, height, width = shape
    words = arithmetic.words(channels)
    across = width + 2 * padding[1]
    if loaded and arithmetic.per_word == 2 and channels in (1, 3):
        smallest = -(-across * channels // 2)
        candidates = [
            Picture(channels, height, width, words, 0, row, padding, tight=True)
            for row in range(smallest, smallest + 16)
        ]
    else:
        candidates = [
            Picture(channels, height, width, words, pitch, across * pitch + extra, padding)
            for pitch in range(words, words + 8)
            for extra in range(0, 32, 1 if arithmetic.per_word == 2 else 2)
        ]

    halves = _halves(reads)
    best, least = candidates[0], (math.inf, True, 0)
    for each in candidates:
        count, full, half = runs(arithmetic, each, taps_x, reads, whole)
        length = count * (full + half * (HALF_STEP if arithmetic.tensor else 0.5))
        # Where a lane reads alone, it is the number of reads that counts.
        if not arithmetic.tensor and not aligned(each, reads):
            length *= unaligned
        # Else it is no better, even without a conflict.
        if ((1 + PAIRED) * length, False, each.size) < least:
            turns, pairs = _turns(arithmetic, each, reads, halves, whole)
            cost = length * (1 + (PAIRED if pairs else 1) * turns), not pairs, each.size
            best, least = min((best, least), (each, cost), key=lambda found: found[1])
    return best


def aligned(source: Picture, reads: Sequence[Reads]) -> bool:
    """Whether all reads begin at even words, so that a lane can read two words at once."""
    return (
        not source.tight
        and source.row % 2 == 0
        and (
            source.pitch % 2 == 0
            or (source.contiguous and all(x % 2 == 0 for read in reads for _, x in read))
        )
    )


def runs(
    arithmetic: Arithmetic,
    source: Picture,
    taps_x: int,
    reads: Sequence[Reads],
    whole: bool = False,
) -> tuple[int, int, int]:
    """Runs of words in a row of taps, and the full and half steps each of them takes."""
    count, length = _run(arithmetic, source, taps_x)
    if not arithmetic.tensor and not aligned(source, reads):
        return count, 0, length
    full, rest = divmod(length, arithmetic.step)
    if 2 * rest > arithmetic.step or (whole and rest):
        full, rest = full + 1, 0
    return count, full, 1 if rest else 0


def words_beyond(
    arithmetic: Arithmetic,
    source: Picture,
    taps_x: int,
    reads: Sequence[Reads],
    whole: bool = False,
) -> int:
    """Words after a run's last that its steps read, too."""
    _, full, half = runs(arithmetic, source, taps_x, reads, whole)
    return (
        full * arithmetic.step + half * arithmetic.step // 2 - _run(arithmetic, source, taps_x)[1]
    )


def _run(arithmetic: Arithmetic, source: Picture, taps_x: int) -> tuple[int, int]:
    """How many runs of words a row of taps has, and the words of each."""
    if source.tight:
        return 1, -(-taps_x * source.channels // arithmetic.per_word)
    if source.contiguous:
        return 1, taps_x * source.words
    return taps_x, source.words


def conflicts(
    arithmetic: Arithmetic, source: Picture, reads: Sequence[Reads], whole: bool = False
) -> float:
    """Turns that a read of 8 rows takes beyond the first, on average."""
    return _turns(arithmetic, source, reads, _halves(reads), whole)[0] - 1


def in_pairs(arithmetic: Arithmetic, source: Picture, reads: Sequence[Reads], whole: bool) -> bool:
    """Whether a lane reads two neighbouring words of a row at once for tensor cores."""
    return _turns(arithmetic, source, reads, _halves(reads), whole)[1]


def _halves(reads: Sequence[Reads]) -> list[tuple[Reads, int]]:
    """Rows that are read at once, each counted from the first, and how many are so."""
    found: Counter[Reads] = Counter()
    for read in reads:
        for rows in (read[:8], read[8:]):
            top, left = rows[0]
            found[tuple((y - top, x - left) for y, x in rows)] += 1
    return list(found.items())


def _turns(
    arithmetic: Arithmetic,
    source: Picture,
    reads: Sequence[Reads],
    halves: Sequence[tuple[Reads, int]],
    whole: bool,
) -> tuple[float, bool]:
    """Turns that a read of a word of 8 rows takes, on average, and whether it is one of pairs.

    On tensor cores 4 lanes read a word each of a row, and then another. Where steps are `whole` and
    words are two halves, they may read two neighbours at once, 4 rows at a time, with half the
    instructions: 4 % less time for ece408's convolutions. Elsewhere, and in TF32, that took longer,
    up to 13 % (H200, 2026-11-18). Without tensor cores all read the same two words, or one.
    """
    even = aligned(source, reads)
    words = 4 if arithmetic.tensor else 2 if even else 1
    if source.tight:  # where a row begins depends on where the first does
        halves = [(rows, 1) for read in reads for rows in (read[:8], read[8:])]
    can = even and whole and arithmetic.per_word == 2
    single = double = 0
    for rows, count in halves:
        # Where all of them lie does not matter: banks follow each other in a circle.
        first = source.place(*rows[0])
        places = tuple([source.place(*each) - first for each in rows])
        single += count * bank_turns(places, words)
        if can:
            double += count * (bank_turns(places[:4], 8) + bank_turns(places[4:], 8))
    pairs = can and double <= 2 * single
    return (double / 2 if pairs else single) / (2 * len(reads)), pairs


@lru_cache(maxsize=10_000)
def bank_turns(places: tuple[int, ...], words: int) -> int:
    """How often the busiest bank is asked for another word, of so many at each place."""
    asked = {place + word for place in places for word in range(words)}
    turns = [0] * BANKS
    for word in asked:
        turns[word % BANKS] += 1
    return max(turns)
