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
from tilewright.fuse.cuda.patches import GROUPS, MOST_PATCHES, PATCH, PIECE, STAGES, Patches

CHUNK = 32  # words of a pixel that lie together: 128 bytes, over which pieces change places
STEP = 8  # words of a sum that an instruction takes
COLUMNS = 32  # filters of which a lane has eight that follow each other
MOST_COLUMNS = 256  # of an instruction
OTHERS = 40  # registers, besides sums
LEAST_CHANNELS = 32  # fewer leave most of a chunk empty


@dataclass(frozen=True)
class TensorPatches(Patches):
    turned: bool = False  # filters are an instruction's rows, and positions its columns
    chunk_words = CHUNK
    pixel_bytes = 4 * CHUNK
    step_words = STEP
    other_registers = OTHERS
    rates = PATCHES

    @property
    def turns(self) -> int:
        return math.prod(self.operation.window.taps)

    @property
    def columns(self) -> int:
        """Of an instruction: filters, or positions of patches above each other."""
        return PATCH**2 * self.down if self.turned else self.wide

    @property
    def units(self) -> int:
        """Instructions whose sums four warps have: of patches, or of 64 filters of some."""
        if not self.turned:
            return self.patches // self.groups
        return self.images * self.across // self.groups * (self.wide // BAND)

    @property
    def sums(self) -> tuple[int, int]:
        return self.units, self.columns // 2

    @property
    def unit(self) -> tuple[int, int]:
        return (self.columns, BAND) if self.turned else (PATCH**2, self.columns)

    @property
    def chosen(self) -> Patched:
        return Patched(1, self.images, self.down, self.across, self.groups, self.wide, self.stages,
                       self.pictures, self.turned)  # fmt: skip

    def adding_cycles(self, rates: PatchRates) -> float:
        step = rates.step + rates.product * self.columns
        return self.groups * self.units * self.steps * step

    def pack(self, weight: NDArray[np.float32]) -> Words:
        """By blocks of filters, chunks and taps."""
        filters, taps = len(weight), math.prod(weight.shape[1:3])
        words = self.arithmetic.operands(weight.reshape(filters, -1, self.arithmetic.per_word))
        # Of 32 filters a lane's eight come from four columns of 8, two of each; of 16 rows, where
        # filters are these, its two are 8 apart.
        lanes = (8, 2) if self.turned else (4, 4, 2)
        turned = words.reshape(filters // math.prod(lanes), *lanes, -1).swapaxes(1, 2)
        pieces = in_pieces(turned.reshape(filters, -1))
        ordered = pieces.reshape(self.column_blocks, self.wide, taps, self.chunks, CHUNK)
        return np.ascontiguousarray(ordered.transpose(0, 3, 2, 1, 4)).ravel()

    def fits(self, gpu: Generation) -> bool:
        return (
            self.groups in GROUPS
            and (self.images * self.across if self.turned else self.patches) % self.groups == 0
            and self.wide >= COLUMNS
            and self.wide % (BAND if self.turned else COLUMNS) == 0
            and self.columns <= MOST_COLUMNS
            and super().fits(gpu)
        )


def can_be_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> bool:
    return (
        arithmetic.from_shared
        and patches.can_be_patches(operation, gpu, LEAST_CHANNELS)
        # Pieces of pixels, and a lane's eight filters, are whole.
        and arithmetic.words(operation.source[0]) % PIECE == 0
        and operation.summed[0] % 8 == 0
    )


def all_patches(
    arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> Iterator[TensorPatches]:
    """The plans that are compared: as many stages as fit, of pictures first."""
    if not can_be_patches(arithmetic, operation, gpu):
        return
    filters, height, width = operation.summed
    high, broad = (min(-(-side // PATCH), MOST_PATCHES[-1]) for side in (height, width))
    for turned, unit in ((False, COLUMNS), (True, BAND)):
        columns = -(-filters // unit)
        widths = {unit * -(-columns // count) for count in range(1, columns + 1)}
        for groups, count, wide in itertools.product(GROUPS, MOST_PATCHES, sorted(widths)):
            for down, across in itertools.product(range(1, high + 1), range(1, broad + 1)):
                images, rest = divmod(count, down * across)
                if rest or images == 0:
                    continue
                for pictures, stages in itertools.product((3, 2, 1), range(STAGES, 2, -1)):
                    plan = TensorPatches(arithmetic, operation, images, down, across, groups, wide,
                                         stages, pictures, turned)  # fmt: skip
                    if plan.fits(gpu):
                        yield plan
                        break
