"""Wide convolutions in patches whose operands tensor cores read in shared memory, both of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda import patches
from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.choice import Patched
from tilewright.fuse.cuda.generations import PATCHES, Generation, PatchRates
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.packing import in_pieces
from tilewright.fuse.cuda.panels_ways import BAND
from tilewright.fuse.cuda.patches import (
    EIGHTS,
    GROUPS,
    MOST_PATCHES,
    PATCH,
    STAGES,
    Patches,
    in_line,
    line_shapes,
    sections_of,
    worth_eights,
)

CHUNK = 32  # words of a pixel that lie together: 128 bytes, over which pieces change places
STEP = 8  # words of a sum that an instruction takes
COLUMNS = 32  # filters of which a lane has eight that follow each other
MOST_COLUMNS = 256  # of an instruction
OF_INSTRUCTION = 26  # registers, besides sums
OTHERS, MORE_IN_PARTS = 40, 16  # registers, besides sums
OF_ADDED = 8  # more where floats are added, and a thread has few: 300 to 700 bytes were spilled
# Of operands in parts (`patches_tensor.cuh`): so many taps' products are added up by tensor cores;
# cycles until those are there that a thread then adds.
TAPS_A_SUM, WAIT = 4, 60
# Times what is estimated where half of the only chunk is empty. Chosen: cut where such kernels
# promised 4 %, `keras-cifar` and `galaxies` took 1.24 and 1.15 times as long in fp16 (1,000 images,
# H200, 2026-11-19).
HALF_EMPTY = 1.1
LEAST_CHANNELS = 32  # fewer leave most of a chunk empty
LEAST_APART = 16  # where taps are apart: elsewhere what lies between them is multiplied, too


@dataclass(frozen=True)
class TensorPatches(Patches):
    turned: bool = False  # filters are an instruction's rows, and positions its columns
    chunk_words = CHUNK
    pixel_bytes = 4 * CHUNK
    step_words = STEP
    rates = PATCHES

    @property
    def other_registers(self) -> int:
        more = MORE_IN_PARTS * (self.arithmetic.parts - 1)
        floats = self.arithmetic.per_word == 1 and not self.turned
        if self.operation.added and floats and self.groups == GROUPS[-1]:
            more += OF_ADDED
        return OTHERS + more

    @property
    def turns(self) -> int:
        return math.prod(self.taps)

    @property
    def columns(self) -> int:
        """Of an instruction: filters, or positions of patches above each other."""
        return PATCH**2 * self.down if self.turned else self.wide

    @property
    def units(self) -> int:
        """Instructions whose sums four warps have: of patches, or of 64 filters of some."""
        if not self.turned:
            return self.patches // self.groups
        return self.strips // self.groups * (self.wide // BAND)

    @property
    def strips(self) -> int:
        """Of patches above each other."""
        return self.patches // self.down

    @property
    def sums(self) -> tuple[int, int]:
        return self.units, self.columns // 2

    @property
    def unit(self) -> tuple[int, int]:
        return (self.columns, BAND) if self.turned else (PATCH**2, self.columns)

    @property
    def chosen(self) -> Patched:
        return Patched(1, self.images, self.down, self.across, self.groups, self.wide, self.stages,
                       self.pictures, self.turned, eights=self.eights, sections=self.sections,
                       sharing=self.sharing, line=self.line)  # fmt: skip

    def adding_cycles(self, rates: PatchRates) -> float:
        step = rates.step + rates.product * self.columns
        sums = self.groups * self.units * self.steps * self.arithmetic.products * step
        if self.arithmetic.parts > 1:
            sums += self.chunks * self.turns / TAPS_A_SUM * (math.prod(self.sums) + WAIT)
        return sums

    def work_cycles(self, rates: PatchRates) -> float:
        half = 2 * self.own_words <= CHUNK
        return (HALF_EMPTY if half else 1) * super().work_cycles(rates)

    @property
    def eight_floats(self) -> bool:
        return self.arithmetic.per_word == 1 and not self.turned

    def added_cycles(self, rates: PatchRates) -> float:
        if not self.operation.added:
            return 0
        if self.turned:  # two filters at a time, of one position after the other
            return rates.added_apart * self.units * self.columns / PATCH**2
        eights = self.columns // COLUMNS
        turns = self.units * eights / (1 if eights % 2 else 2)
        return rates.added * turns * (1 + 1 / self.arithmetic.per_word)

    def pack(self, weight: NDArray[np.float32]) -> Words:
        """By blocks of filters, chunks, taps and parts."""
        filters, taps = len(weight), math.prod(weight.shape[1:3])
        weight = weight.reshape(filters, -1, self.arithmetic.per_word)
        parts = [self._ordered(part, taps) for part in self.arithmetic.in_parts(weight)]
        return np.stack(parts, 3).ravel()

    def _ordered(self, words: Words, taps: int) -> Words:
        # Of 32 filters a lane's eight come from four columns of 8, two of each; of 16 rows, where
        # filters are these, its two are 8 apart.
        filters, lanes = len(words), (8, 2) if self.turned else (4, 4, 2)
        turned = words.reshape(filters // math.prod(lanes), *lanes, -1).swapaxes(1, 2)
        pieces = in_pieces(turned.reshape(filters, -1))
        ordered = pieces.reshape(self.column_blocks, self.wide, taps, self.chunks, CHUNK)
        return ordered.transpose(0, 3, 2, 1, 4)

    def fits(self, gpu: Generation) -> bool:
        return (
            self.down >= 1
            and self.groups in GROUPS
            and (self.strips if self.turned else self.patches) % self.groups == 0
            and not (self.operation.pool and self.eights)  # nobody has all of a window
            and self.wide >= COLUMNS
            and self.wide % (BAND if self.turned else COLUMNS) == 0
            and self.columns <= MOST_COLUMNS
            # The compiler looks at a single instruction without what is given away.
            and self.columns // 2 + OF_INSTRUCTION <= self.first_registers
            and super().fits(gpu)
        )


def can_be_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> bool:
    apart = operation.window.apart != (1, 1)
    least = LEAST_APART if apart else LEAST_CHANNELS
    return arithmetic.tensor and patches.can_be_patches(operation, gpu, least)


def all_patches(
    arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> Iterator[TensorPatches]:
    """The plans that are compared: as many stages as fit, of pictures first."""
    if not can_be_patches(arithmetic, operation, gpu):
        return
    ways = ((False, COLUMNS), (True, BAND))
    for sections, (turned, unit) in itertools.product(sections_of(operation, LEAST_CHANNELS), ways):
        filters = operation.summed[0] // sections
        columns = -(-filters // unit)
        widths = {unit * -(-columns // count) for count in range(1, columns + 1)}
        if sections > 1:
            widths = {wide for wide in widths if filters % wide == 0}
        for groups, count, wide in itertools.product(GROUPS, MOST_PATCHES, sorted(widths)):
            for images, down, across, eights, line in _shapes(operation, count):
                for sharing in (1, 2):
                    for pictures, stages in itertools.product((3, 2, 1), range(STAGES, 2, -1)):
                        plan = TensorPatches(
                            arithmetic, operation, images, down, across, groups, wide, stages,
                            pictures, eights, sections, sharing, line, turned,
                        )  # fmt: skip
                        if plan.fits(gpu):
                            yield plan
                            break


def _shapes(operation: Operation, count: int) -> Iterator[tuple[int, int, int, int, bool]]:
    """Images, patches above each other and beside each other, and eights of images, of so many
    patches; and whether positions are in a line."""
    _, height, width = operation.summed
    if in_line(operation):
        yield from (
            (images, down, 1, 0, True) for images, down in line_shapes(operation, PATCH, count)
        )
    tall, broad = (min(-(-side // PATCH), MOST_PATCHES[-1]) for side in (height, width))
    for down, across in itertools.product(range(1, tall + 1), range(1, broad + 1)):
        images, rest = divmod(count, down * across)
        if rest == 0 and images:
            yield images, down, across, 0, False
    for eights in EIGHTS if worth_eights(operation) else ():
        for across in (each for each in range(1, width + 1) if count % each == 0):
            down = count // across
            if PATCH * down <= eights * height:
                yield PATCH * eights, down, across, eights, False
