"""A wide convolution on Hopper, in patches of pictures that pass through shared memory.

`stack` keeps an image's pictures on a multiprocessor and reads rows of them into registers, which
is best where channels are few. Where they are many, weights and sums are what fills a
multiprocessor: here a block takes 64 positions and more by many filters, and reads every pixel
once for all taps (`patches.cuh` says how). Pictures between layers lie in device memory.

What is the same of all such kernels is here; `patches_tensor` has those on tensor cores,
`patches_plain` those without, `patches_choice` says which.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.beside import with_parameters
from tilewright.fuse.cuda.choice import Patched
from tilewright.fuse.cuda.generations import Generation, PatchRates
from tilewright.fuse.cuda.operations import Form, OfOperation, Operation
from tilewright.fuse.cuda.packing import expanded, pack_all
from tilewright.fuse.cuda.panels_ways import FETCHING, REGISTERS
from tilewright.model.layers import Shape
from tilewright.model.network import Parameters

PATCH = 8  # positions along a side, but that a patch may have more rows or fewer; or images
PIECE = 4  # words that are fetched at once
PANEL_CHUNK = 32  # words of an image in panels
PLACE_BYTES = 8  # that say where a pixel lies
GROUPS = 1, 2, 3, 4  # of four warps
MOST_PATCHES = 1, 2, 3, 4, 6, 8  # of a block
LEFT = 40  # registers of a thread that fetches
STAGES = 6  # of weights, at most
MORE = 16  # registers of a thread that adds up, where images are beside each other
EIGHTS = 1, 2, 4, 8  # of images
SYSTEM_BYTES = 2048  # of shared memory, that a block's barriers and the system may take
# Of positions in patches of one image, that are none of the picture: more are worth a look at
# patches of several images.
MOST_EMPTY = 0.15


@dataclass(frozen=True)
class Patches(OfOperation):
    """A kernel's plan: what of an operation's sums a block takes."""

    arithmetic: Arithmetic
    operation: Operation
    images: int
    down: int  # patches of an image
    across: int
    groups: int  # of four warps that add up
    wide: int  # filters
    stages: int  # of weights
    pictures: int  # chunks of pictures
    # Of images, whose pixels lie beside each other: what else are eight columns of a patch are
    # eight images, and rows of so many eights follow each other. 0: images are apart.
    eights: int = 0
    # Of channels, of which a block's filters see one: where channels are in groups, one of these or
    # several.
    sections: int = 1
    # Blocks of a multiprocessor: one adds up while another writes.
    sharing: int = 1
    # A picture's positions are in a line, and eight that follow each other a row of a patch.
    line: bool = False

    @property
    def tall(self) -> int:
        """Rows of a patch."""
        return PATCH

    @property
    @abstractmethod
    def chunk_words(self) -> int:
        """Of a pixel, that lie together."""

    @property
    @abstractmethod
    def pixel_bytes(self) -> int:
        """From a pixel's chunk to the next one's."""

    @property
    @abstractmethod
    def step_words(self) -> int:
        """Of a chunk, that are multiplied at a time."""

    @property
    @abstractmethod
    def turns(self) -> int:
        """Stages of weights in which a chunk's come."""

    @property
    @abstractmethod
    def sums(self) -> tuple[int, int]:
        """Of a thread that adds up, as the kernel has them."""

    @property
    @abstractmethod
    def unit(self) -> tuple[int, int]:
        """Positions and filters whose sums are a thread's, or four warps', at a time."""

    @property
    @abstractmethod
    def other_registers(self) -> int:
        """Of a thread that adds up, besides sums and what images beside each other take."""

    @property
    @abstractmethod
    def chosen(self) -> Patched:
        """The plan as it is chosen."""

    @property
    @abstractmethod
    def rates(self) -> PatchRates: ...

    @abstractmethod
    def adding_cycles(self, rates: PatchRates) -> float:
        """About how long a block adds up for a piece of work."""

    @property
    @abstractmethod
    def eight_floats(self) -> bool:
        """Whether results are floats, of which a lane has eight filters."""

    @abstractmethod
    def added_cycles(self, rates: PatchRates) -> float:
        """About how long it waits for what is added to that, in all."""

    @abstractmethod
    def pack(self, weight: NDArray[np.float32]) -> Words:
        """Weights as they lie in shared memory, (filter, rows of taps, columns of taps, channel)
        in whole blocks of filters and whole chunks."""

    @property
    def rounds(self) -> bool:
        """Whether what is read is rounded to operands first, or taken apart."""
        arithmetic = self.arithmetic
        return arithmetic.parts > 1 or (self.operation.mixed and arithmetic.rounds)

    @property
    def gives(self) -> Form:
        return self.operation.gives

    @property
    def patches(self) -> int:
        return (1 if self.eights else self.images) * self.down * self.across

    @property
    def sets(self) -> int:
        """Of images whose rows follow each other."""
        return max(self.eights, 1)

    @property
    def side(self) -> int:
        """Columns of a patch."""
        return 1 if self.eights else PATCH

    @property
    def source_sides(self) -> tuple[int, int]:
        """Of the picture that is read, as it is here."""
        return self._sides(self.operation.source)

    @property
    def summed_sides(self) -> tuple[int, int]:
        return self._sides(self.operation.summed)

    @property
    def result_sides(self) -> tuple[int, int]:
        return self._sides(self.operation.result)

    def _sides(self, shape: Shape) -> tuple[int, int]:
        _, height, width = shape
        return (1, height * width) if self.line else (height, width)

    @property
    def block_rows(self) -> int:
        """Of a picture, or of a line's eights."""
        return self.tall * self.down // self.sets

    @property
    def taps(self) -> tuple[int, int]:
        return self.operation.window.own_taps

    @property
    def threads(self) -> int:
        return FETCHING + 128 * self.groups

    @property
    def words(self) -> int:
        """Of a pixel."""
        return self.arithmetic.words(self.operation.source[0])

    @property
    def own_words(self) -> int:
        """Of a pixel's section, which is all that a block reads."""
        return self.arithmetic.words(self.operation.source[0] // self.sections)

    @property
    def at_once(self) -> int:
        """Words of a pixel that are copied by one instruction: sections follow each other."""
        return math.gcd(self.own_words, PIECE)

    @property
    def chunks(self) -> int:
        return -(-self.own_words // self.chunk_words)

    @property
    def last_steps(self) -> int:
        """Of the last chunk."""
        last = self.own_words - self.chunk_words * (self.chunks - 1)
        return -(-last // self.step_words)

    @property
    def steps(self) -> int:
        """Of a sum, whose taps each take so many words."""
        each = (self.chunks - 1) * (self.chunk_words // self.step_words) + self.last_steps
        return math.prod(self.taps) * each

    @property
    def stage_words(self) -> int:
        """Of weights that come at a time."""
        words = math.prod(self.taps) // self.turns * self.chunk_words * self.wide
        return self.arithmetic.parts * words

    @property
    def planes(self) -> tuple[int, int]:
        """Of pixels with the same remainders, as many as taps read."""
        window = self.operation.window
        return min(window.taps[0], window.stride[0]), min(window.taps[1], window.stride[1])

    @property
    def rows(self) -> int:
        """Of a plane."""
        window = self.operation.window
        return 1 if self.line else self.block_rows + (window.taps[0] - 1) // window.stride[0]

    @property
    def pitch(self) -> int:
        """Pixels of a row."""
        window = self.operation.window
        own = PATCH * self.block_rows if self.line else self.side * self.across
        return own + (window.taps[1] - 1) // window.stride[1]

    @property
    def used_slots(self) -> int:
        """Places of pixels in a chunk of pictures."""
        return self.images * math.prod(self.planes) * self.rows * self.pitch

    @property
    def slots(self) -> int:
        """In whole groups of eight, over which pieces may change places."""
        return -(-self.used_slots // 8) * 8

    @property
    def shared_bytes(self) -> int:
        pictures = self.pictures * self.arithmetic.parts * self.slots * self.pixel_bytes
        return pictures + 4 * self.stages * self.stage_words + PLACE_BYTES * self.slots

    @property
    def first_registers(self) -> int:
        """Of every thread, as it begins."""
        return REGISTERS // self.sharing // self.threads // 8 * 8

    @property
    def registers(self) -> int:
        """Of a thread that adds up, when those that fetch have given theirs away."""
        each = self.first_registers
        more = (each - LEFT) * FETCHING // (self.threads - FETCHING) // 8 * 8
        return min(240, each + more)

    @property
    def blocks(self) -> tuple[int, int]:
        """Of an image's positions, along y and x."""
        height, width = self.summed_sides
        if self.line:
            return -(-width // (PATCH * self.block_rows)), 1
        return -(-height // self.block_rows), -(-width // (self.side * self.across))

    @property
    def column_blocks(self) -> int:
        return -(-self.operation.summed[0] // self.wide)

    def works(self, images: int) -> int:
        """Pieces of work, which blocks take one after the other."""
        return -(-images // self.images) * math.prod(self.blocks) * self.column_blocks

    @property
    def result_words(self) -> int:
        """Of an image; in panels, in whole chunks."""
        channels, height, width = self.operation.result
        words = self.arithmetic.words(channels) * height * width
        return -(-words // PANEL_CHUNK) * PANEL_CHUNK if self.gives == "panels" else words

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        name = self.operation.names[0]
        filters = self.wide * self.column_blocks
        return {
            f"{name}.bias": 0,
            f"{name}.weight": filters,
            "all": filters + self.column_blocks * self.chunks * self.turns * self.stage_words,
        }

    def parameters(self, given: Parameters) -> Words:
        packers = {self.operation.names[0]: self._packed}
        given = with_parameters(self.operation.stages, given, self.arithmetic)
        return pack_all(given, self.parameter_words, self.arithmetic, packers)

    def _packed(self, given: NDArray[np.float32]) -> Words:
        operation, per_word = self.operation, self.arithmetic.per_word
        window = operation.window
        channels, taps = operation.source[0], window.taps
        weight = expanded(operation.stages[0], given).reshape(-1, channels, *taps)
        weight, taps = weight[..., :: window.apart[0], :: window.apart[1]], self.taps
        # Of each section's filters the channels that they see.
        own, each = channels // self.sections, range(self.sections)
        weight = weight.reshape(self.sections, -1, self.sections, own, *taps)[each, :, each]
        weight = weight.reshape(-1, own, *taps)
        filters, deep = self.wide * self.column_blocks, self.chunk_words * self.chunks * per_word
        values = np.zeros((filters, *taps, deep), np.float32)
        values[: len(weight), ..., :own] = weight.transpose(0, 2, 3, 1)
        return self.pack(values)

    def work_cycles(self, rates: PatchRates) -> float:
        """About how long a block takes for a piece of work, while others share its multiprocessor:
        not less than what all of them have to do there."""
        turns = self.chunks * self.turns
        sums = self.adding_cycles(rates) + turns * rates.turn
        weights = turns * 4 * self.stage_words / rates.copied
        copies = self.chunks * self.used_slots * (self.chunk_words // self.at_once)
        pictures = copies / rates.fetched
        # With one chunk of pictures at a time, all wait while it comes.
        if self.pictures == 1:
            sums += pictures
        put = rates.put * self.patches * self.wide * self.tall / PATCH
        if self.eight_floats:
            put *= rates.eight_floats
        alone = rates.work + max(sums, weights, pictures) + put + self.added_cycles(rates)
        if self.sharing == 1:
            return alone
        return rates.sharing * max(alone, self.sharing * max(sums, weights, put))

    def fits(self, gpu: Generation) -> bool:
        """Whether there can be such a kernel: it finds room, and the kernel's table of places does
        for the rows and columns that it holds in 15 and 16 bits, or in 7 and 8."""
        window, bits = self.operation.window, (7, 8) if self.eights else (15, 16)
        return (
            min(self.images, self.down, self.across, self.wide) >= 1
            and self.groups in GROUPS
            and self.eights in (0, *EIGHTS)
            and self.in_sections
            and (not self.line or (self.across == 1 and in_line(self.operation)))
            and (
                (
                    not self.line
                    and self.images == PATCH * self.eights
                    and self.tall * self.down % self.eights == 0
                )
                if self.eights
                else (self.images == 1 or self.blocks == (1, 1))  # of several, each is whole
            )
            and window.stride[0] * self.rows < 2 ** bits[0]
            and window.stride[1] * self.pitch < 2 ** bits[1]
            and 2 <= self.stages <= STAGES
            and 1 <= self.pictures <= 4
            and 1 <= self.sharing <= 2
            and self.sharing * (self.shared_bytes + SYSTEM_BYTES) <= gpu.shared_bytes + 1024
            and self.in_registers
        )

    @property
    def in_sections(self) -> bool:
        """Whether channels and filters can be: in whole words, and in whole blocks."""
        (channels, *_), (filters, *_) = self.operation.source, self.operation.summed
        return self.sections == 1 or (
            self.operation.window.groups % self.sections == 0
            and channels // self.sections % self.arithmetic.per_word == 0
            and filters // self.sections % self.wide == 0
        )

    @property
    def in_registers(self) -> bool:
        """Whether nothing is spilled."""
        more = MORE if self.eights else 0
        sums = self.arithmetic.parts * math.prod(self.sums)
        return sums + self.other_registers + more <= self.registers


def in_line(operation: Operation) -> bool:
    """Whether a sum's positions can be: it has one row, or no window to speak of."""
    window = operation.window
    below = window.after or window.padding
    row = operation.source[1] == operation.summed[1] == 1
    one = window.stride == (1, 1) and operation.source[1:] == operation.summed[1:]
    return (
        not operation.pool
        and window.taps[0] == 1
        and (window.padding[0], below[0]) == (0, 0)
        and (row or (one and window.taps[1] == 1 and (window.padding[1], below[1]) == (0, 0)))
    )


def line_shapes(operation: Operation, high: int, count: int) -> Iterator[tuple[int, int]]:
    """Images, and patches of each in a block, of so many patches of so many eights in a line."""
    most = -(-math.prod(operation.summed[1:]) // (PATCH * high))
    for down in range(1, min(most, count) + 1):
        images, rest = divmod(count, down)
        if rest == 0 and (images == 1 or (images > 1 and down == most)):
            yield images, down


def worth_eights(operation: Operation) -> bool:
    """Whether much of an image's patches would be empty."""
    _, height, width = operation.summed
    whole = math.prod(-(-side // PATCH) * PATCH for side in (height, width))
    return height * width < (1 - MOST_EMPTY) * whole


def sections_of(operation: Operation, least: int) -> list[int]:
    """Into how many sections an operation's channels can be divided, of so many or more each."""
    groups = operation.window.groups
    counts = (each for each in range(2, groups + 1) if groups % each == 0)
    return [1, *(each for each in counts if operation.source[0] >= least * each)]


def can_be_patches(operation: Operation, gpu: Generation, least: int) -> bool:
    """Whether there can be such a kernel for an operation of so many channels or more."""
    return (
        gpu.warpgroups
        and operation.kind == "sum"
        and not operation.connected
        and operation.source[0] >= least
        and all(form == "words" for form in operation.forms)
        and operation.gives in ("words", "panels")
    )
