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
from tilewright.model.network import Parameters

PATCH = 8  # positions along a side, but that a patch may have more rows or fewer
PIECE = 4  # words that are fetched at once
PANEL_CHUNK = 32  # words of an image in panels
PLACE_BYTES = 8  # that say where a pixel lies
GROUPS = 1, 2, 3, 4  # of four warps
MOST_PATCHES = 1, 2, 3, 4, 6, 8  # of a block
LEFT = 40  # registers of a thread that fetches
STAGES = 6  # of weights, at most


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
        """Of a thread that adds up, besides sums."""

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

    @abstractmethod
    def pack(self, weight: NDArray[np.float32]) -> Words:
        """Weights as they lie in shared memory, (filter, rows of taps, columns of taps, channel)
        in whole blocks of filters and whole chunks."""

    @property
    def gives(self) -> Form:
        return self.operation.gives

    @property
    def patches(self) -> int:
        return self.images * self.down * self.across

    @property
    def threads(self) -> int:
        return FETCHING + 128 * self.groups

    @property
    def words(self) -> int:
        """Of a pixel."""
        return self.arithmetic.words(self.operation.source[0])

    @property
    def chunks(self) -> int:
        return -(-self.words // self.chunk_words)

    @property
    def last_steps(self) -> int:
        """Of the last chunk."""
        return -(-(self.words - self.chunk_words * (self.chunks - 1)) // self.step_words)

    @property
    def steps(self) -> int:
        """Of a sum, whose taps each take so many words."""
        each = (self.chunks - 1) * (self.chunk_words // self.step_words) + self.last_steps
        return math.prod(self.operation.window.taps) * each

    @property
    def stage_words(self) -> int:
        """Of weights that come at a time."""
        taps = math.prod(self.operation.window.taps)
        return taps // self.turns * self.chunk_words * self.wide

    @property
    def planes(self) -> tuple[int, int]:
        """Of pixels with the same remainders, as many as taps read."""
        window = self.operation.window
        return min(window.taps[0], window.stride[0]), min(window.taps[1], window.stride[1])

    @property
    def rows(self) -> int:
        """Of a plane."""
        window = self.operation.window
        return self.tall * self.down + (window.taps[0] - 1) // window.stride[0]

    @property
    def pitch(self) -> int:
        """Pixels of a row."""
        window = self.operation.window
        return PATCH * self.across + (window.taps[1] - 1) // window.stride[1]

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
        rings = self.pictures * self.slots * self.pixel_bytes + 4 * self.stages * self.stage_words
        return rings + PLACE_BYTES * self.slots

    @property
    def registers(self) -> int:
        """Of a thread that adds up, when those that fetch have given theirs away."""
        each = REGISTERS // self.threads // 8 * 8
        more = (each - LEFT) * FETCHING // (self.threads - FETCHING) // 8 * 8
        return min(240, each + more)

    @property
    def blocks(self) -> tuple[int, int]:
        """Of an image's positions, along y and x."""
        _, height, width = self.operation.summed
        return -(-height // (self.tall * self.down)), -(-width // (PATCH * self.across))

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
        channels, taps = operation.source[0], operation.window.taps
        weight = expanded(operation.stages[0], given).reshape(-1, channels, *taps)
        filters, deep = self.wide * self.column_blocks, self.chunk_words * self.chunks * per_word
        values = np.zeros((filters, *taps, deep), np.float32)
        values[: len(weight), ..., :channels] = weight.transpose(0, 2, 3, 1)
        return self.pack(values)

    def work_cycles(self, rates: PatchRates) -> float:
        """About how long a block takes for a piece of work."""
        turns = self.chunks * self.turns
        sums = self.adding_cycles(rates) + turns * rates.turn
        weights = turns * 4 * self.stage_words / rates.copied
        pictures = self.chunks * self.used_slots * (self.chunk_words // PIECE) / rates.fetched
        # With one chunk of pictures at a time, all wait while it comes.
        if self.pictures == 1:
            sums += pictures
        put = rates.put * self.patches * self.wide * self.tall / PATCH
        return rates.work + max(sums, weights, pictures) + put

    def fits(self, gpu: Generation) -> bool:
        """Whether there can be such a kernel: it finds room, and the kernel's table of places does
        for the rows and columns that it holds in 15 and 16 bits."""
        window = self.operation.window
        return (
            min(self.images, self.down, self.across, self.wide) >= 1
            and self.groups in GROUPS
            and (self.images == 1 or self.blocks == (1, 1))  # of several images, each is whole
            and window.stride[0] * self.rows < 2**15
            and window.stride[1] * self.pitch < 2**16
            and 2 <= self.stages <= STAGES
            and 1 <= self.pictures <= 4
            and self.shared_bytes <= gpu.shared_bytes - 1024
            and math.prod(self.sums) + self.other_registers <= self.registers
        )


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
