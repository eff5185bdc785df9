"""Wide convolutions in patches without tensor cores: threads read operands in shared memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda import patches
from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.choice import Patched
from tilewright.fuse.cuda.generations import PLAIN_PATCHES, Generation, PatchRates
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.patches import (
    EIGHTS,
    GROUPS,
    PATCH,
    PIECE,
    Patches,
    in_line,
    line_shapes,
    sections_of,
    worth_eights,
)

OWN = 16, 12, 8  # filters of a thread
DEPTHS = 32, 16, 8  # channels of a chunk
OTHERS, ONCE = 20, 16  # registers, besides sums; and what one sum of each is made of
TWO_SETS = 4  # more, of eights of images
TALL = range(4, 17)  # rows of a patch
LEAST_CHANNELS = 8  # fewer leave much of a chunk empty
MOST_PATCHES = 1, 2, 3, 4, 6, 8, 12, 16  # of a block
MOST_STAGES = 4  # of weights: a column of taps takes long


@dataclass(frozen=True)
class PlainPatches(Patches):
    own: int = 8  # filters of a thread
    depth: int = 32  # channels of a chunk
    high: int = PATCH  # rows of a patch
    twice: bool = False  # whether a thread has two sums of each
    step_words = PIECE
    rates = PLAIN_PATCHES

    @property
    def tall(self) -> int:
        return self.high

    @property
    def chunk_words(self) -> int:
        return self.depth

    @property
    def pixel_bytes(self) -> int:
        """One piece more: neighbours' pieces are in different banks."""
        return 4 * (self.depth + PIECE)

    @property
    def turns(self) -> int:
        """A column of taps at a time."""
        return self.taps[1]

    @property
    def together(self) -> int:
        """Patches of a warp: lanes are eight columns of each."""
        return math.gcd(4, self.patches)

    @property
    def sums(self) -> tuple[int, int]:
        return self.high, self.own

    @property
    def unit(self) -> tuple[int, int]:
        return self.sums

    @property
    def other_registers(self) -> int:
        """A second sum of each, four channels of a row of pixels, two channels' weights. With one
        sum the compiler has a second register for each, of the other bank: which of the two it is
        in, it changes from channel to channel. Without room for that, with 128 sums, they ran at 40
        to 45 TFLOP/s instead of 48 to 53."""
        more = 4 * self.high + 2 * self.own if self.twice else ONCE
        # Seen: nine rows of two sets of images took 100 bytes more than there were.
        return self.high * self.own + more + OTHERS + (TWO_SETS if self.eights == 2 else 0)

    @property
    def chosen(self) -> Patched:
        return Patched(1, self.images, self.down, self.across, self.groups, self.wide, self.stages,
                       self.pictures, own=self.own, depth=self.depth, high=self.high,
                       twice=self.twice, eights=self.eights, sections=self.sections,
                       line=self.line)  # fmt: skip

    def adding_cycles(self, rates: PatchRates) -> float:
        """A scheduler has a warp of each group; what it reads, it reads beside all others."""
        down, across = self.taps
        fours = self.steps // (down * across)
        planes, further = self.planes[0], self.operation.window.apart[0] * self.sets
        rows = planes * self.high + (down - planes) * min(further, self.high)
        products = self.high * self.own * PIECE * down
        reads = rows + down * PIECE * (self.own // PIECE)
        product = rates.twice if self.twice else rates.product
        each = self.groups * (product * products + rates.step * reads) + rates.wait
        return across * fours * each

    @property
    def eight_floats(self) -> bool:
        return False  # rates are for what it does

    def added_cycles(self, rates: PatchRates) -> float:
        return 0  # nothing that was measured: sums take long here

    def pack(self, weight: NDArray[np.float32]) -> Words:
        """By blocks of filters, chunks, columns of taps, rows of taps and channels, or two channels
        and filters."""
        _, down, across, _ = weight.shape
        channels = 2 if self.twice else 1
        split = weight.reshape(self.column_blocks, self.wide, down, across, self.chunks,
                               self.depth // channels, channels)  # fmt: skip
        ordered = np.ascontiguousarray(split.transpose(0, 4, 3, 2, 5, 1, 6))
        return ordered.view(np.uint32).ravel()

    @property
    def shared_out(self) -> bool:
        """Whether all warps have the same to do, with registers for it."""
        return (
            self.own in OWN
            and self.high in TALL
            and not (self.operation.pool and not self._pools)
            and min(self.patches, self.groups) >= 1
            and 4 * self.groups % (self.patches // self.together) == 0
            and self.wide == self.own * 4 * 4 * self.groups // self.patches
            and self.in_registers
        )

    @property
    def _pools(self) -> bool:
        """Whether a thread has two positions of every window, above each other, and a lane of the
        same warp the other two."""
        beside = self.eights == 0 or (
            self.eights == 1 and self.across % 2 == 0 and self.together % 2 == 0
        )
        return self.high % 2 == 0 and beside

    def fits(self, gpu: Generation) -> bool:
        return self.depth in DEPTHS and self.shared_out and super().fits(gpu)


def can_be_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> bool:
    return not arithmetic.tensor and patches.can_be_patches(operation, gpu, LEAST_CHANNELS)


def all_patches(
    arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> Iterator[PlainPatches]:
    """The plans that are compared: chunks as deep as fit twice, then as many stages."""
    if not can_be_patches(arithmetic, operation, gpu):
        return
    for sections, high, own, groups, count in itertools.product(
        sections_of(operation, LEAST_CHANNELS), _heights(operation), OWN, GROUPS, MOST_PATCHES
    ):
        wide, filters = own * 16 * groups // count, operation.summed[0] // sections
        least = PlainPatches(arithmetic, operation, 1, 1, count, groups, wide, stages=2, pictures=1,
                             sections=sections, own=own, high=high, twice=True)  # fmt: skip
        if not least.shared_out:
            least = replace(least, twice=False)
        if wide - own >= filters or not (least.shared_out and least.in_sections):
            continue
        for images, down, across, eights, line in _shapes(operation, high, count):
            ways = itertools.product((2, 1), DEPTHS, range(MOST_STAGES, 1, -1))
            for pictures, depth, stages in ways:
                plan = replace(least, images=images, down=down, across=across, stages=stages,
                               pictures=pictures, depth=depth, eights=eights,
                               line=line)  # fmt: skip
                if plan.fits(gpu):
                    yield plan
                    break


def _shapes(
    operation: Operation, high: int, count: int
) -> Iterator[tuple[int, int, int, int, bool]]:
    """Images, patches above each other and beside each other, and eights of images, of so many
    patches that are so high; and whether positions are in a line."""
    _, height, width = operation.summed
    if in_line(operation):
        yield from (
            (images, down, 1, 0, True) for images, down in line_shapes(operation, high, count)
        )
    tall, broad = -(-height // high), min(-(-width // PATCH), MOST_PATCHES[-1])
    for down, across in itertools.product(range(1, tall + 1), range(1, broad + 1)):
        images, rest = divmod(count, down * across)
        if rest == 0 and (images == 1 or (images > 1 and (down, across) == (tall, broad))):
            yield images, down, across, 0, False
    for eights in EIGHTS if worth_eights(operation) else ():
        for across in (each for each in range(1, width + 1) if count % each == 0):
            down = count // across
            if high * down % eights == 0 and high * down <= eights * height:
                yield PATCH * eights, down, across, eights, False


def _heights(operation: Operation) -> list[int]:
    """Rows of patches that leave least of the last one empty, and the usual ones."""
    even = 2 if operation.pool else 1
    height = -(-operation.summed[1] // even)
    if in_line(operation):
        height = -(-math.prod(operation.summed[1:]) // PATCH)
    found = {even * -(-height // count) for count in range(1, height + 1)}
    if worth_eights(operation):
        found |= {eights * each for eights in EIGHTS for each in found}
    return sorted({PATCH, *(found & set(TALL))})
