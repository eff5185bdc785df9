"""A wide convolution on Hopper: tensor cores read pictures and weights in shared memory.

`stack` keeps an image's pictures on a multiprocessor and reads rows of them into registers, which
is best where channels are few. Where they are many, weights and sums are what fills a
multiprocessor: here a block takes 64 positions and more by up to 256 filters, and reads every pixel
once for all taps (`patches.cuh` says how). Pictures between layers lie in device memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.choice import Patched
from tilewright.fuse.cuda.generations import PATCHES, Generation, PatchRates
from tilewright.fuse.cuda.operations import Form, OfOperation, Operation
from tilewright.fuse.cuda.packing import expanded, in_pieces, pack_all
from tilewright.fuse.cuda.panels_ways import BAND, FETCHING, REGISTERS
from tilewright.model.network import Parameters

PATCH = 8  # positions along a side: 64 of them are the rows of an instruction
CHUNK = 32  # words of a pixel that lie together
PIECE = 4  # words of it that change places
PLACE_BYTES = 8  # that say where a pixel lies
STEP = 8  # words of a sum that an instruction takes
COLUMNS = 32  # filters of which a lane has eight that follow each other
MOST_COLUMNS = 256  # of an instruction
GROUPS = 1, 2, 3, 4  # of four warps
MOST_PATCHES = 1, 2, 3, 4, 6, 8  # of a block
LEFT = 40  # registers of a thread that fetches
OTHERS = 40  # of one that adds up, besides sums
STAGES = 6  # of weights, at most
LEAST_CHANNELS = 32  # fewer leave most of a chunk empty


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
    turned: bool = False  # filters are an instruction's rows, and positions its columns

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (self.operation,)

    @property
    def names(self) -> tuple[str, ...]:
        return self.operation.names

    @property
    def last(self) -> int:
        """The operation whose result it gives."""
        return self.operation.index

    @property
    def gives(self) -> Form:
        return self.operation.gives

    @property
    def patches(self) -> int:
        return self.images * self.down * self.across

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
    def threads(self) -> int:
        return FETCHING + 128 * self.groups

    @property
    def words(self) -> int:
        """Of a pixel."""
        return self.arithmetic.words(self.operation.source[0])

    @property
    def chunks(self) -> int:
        return -(-self.words // CHUNK)

    @property
    def last_steps(self) -> int:
        """Of the last chunk."""
        return -(-(self.words - CHUNK * (self.chunks - 1)) // STEP)

    @property
    def steps(self) -> int:
        """Of a sum, each two pieces of a tap's chunk."""
        each = (self.chunks - 1) * (CHUNK // STEP) + self.last_steps
        return math.prod(self.operation.window.taps) * each

    @property
    def planes(self) -> tuple[int, int]:
        """Of pixels with the same remainders, as many as taps read."""
        window = self.operation.window
        return min(window.taps[0], window.stride[0]), min(window.taps[1], window.stride[1])

    @property
    def rows(self) -> int:
        """Of a plane."""
        window = self.operation.window
        return PATCH * self.down + (window.taps[0] - 1) // window.stride[0]

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
        """In whole groups of eight, over which pieces change places."""
        return -(-self.used_slots // 8) * 8

    @property
    def shared_bytes(self) -> int:
        rings = self.pictures * self.slots + self.stages * self.wide
        return 4 * CHUNK * rings + PLACE_BYTES * self.slots

    @property
    def registers(self) -> int:
        """Of a thread that adds up, when those that fetch have given theirs away."""
        each = REGISTERS // self.threads // 8 * 8
        more = (each - LEFT) * FETCHING // (self.threads - FETCHING) // 8 * 8
        return min(240, each + more)

    @property
    def sums(self) -> int:
        """Of a lane."""
        return self.units * self.columns // 2

    @property
    def blocks(self) -> tuple[int, int]:
        """Of an image's positions, along y and x."""
        _, height, width = self.operation.summed
        return -(-height // (PATCH * self.down)), -(-width // (PATCH * self.across))

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
        return -(-words // CHUNK) * CHUNK if self.gives == "panels" else words

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        name = self.operation.names[0]
        filters, taps = self.wide * self.column_blocks, math.prod(self.operation.window.taps)
        return {
            f"{name}.bias": 0,
            f"{name}.weight": filters,
            "all": filters + filters * self.chunks * taps * CHUNK,
        }

    def parameters(self, given: Parameters) -> Words:
        packers = {self.operation.names[0]: self._pack}
        return pack_all(given, self.parameter_words, self.arithmetic, packers)

    def _pack(self, given: NDArray[np.float32]) -> Words:
        """Weights as they lie in shared memory: by blocks of filters, chunks and taps."""
        arithmetic, operation = self.arithmetic, self.operation
        channels, taps = operation.source[0], operation.window.taps
        weight = expanded(operation.stages[0], given).reshape(-1, channels, *taps)
        filters = self.wide * self.column_blocks
        values = np.zeros((filters, *taps, CHUNK * self.chunks * arithmetic.per_word), np.float32)
        values[: len(weight), ..., :channels] = weight.transpose(0, 2, 3, 1)
        words = arithmetic.operands(values.reshape(filters, -1, arithmetic.per_word))
        # Of 32 filters a lane's eight come from four columns of 8, two of each; of 16 rows, where
        # filters are these, its two are 8 apart.
        lanes = (8, 2) if self.turned else (4, 4, 2)
        turned = words.reshape(filters // math.prod(lanes), *lanes, -1).swapaxes(1, 2)
        pieces = in_pieces(turned.reshape(filters, -1))
        each = self.wide, math.prod(taps), self.chunks, CHUNK
        ordered = pieces.reshape(self.column_blocks, *each).transpose(0, 3, 2, 1, 4)
        return np.ascontiguousarray(ordered).ravel()


def patched(plan: Patches) -> Patched:
    """A plan as it is chosen."""
    return Patched(1, plan.images, plan.down, plan.across, plan.groups, plan.wide, plan.stages,
                   plan.pictures, plan.turned)  # fmt: skip


def patches_as(
    chosen: Patched, arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> Patches | None:
    """The plan that was chosen, if there is such a one."""
    plan = Patches(arithmetic, operation, chosen.images, chosen.down, chosen.across, chosen.groups,
                   chosen.wide, chosen.stages, chosen.pictures, chosen.turned)  # fmt: skip
    return plan if can_be_patches(arithmetic, operation, gpu) and fits(plan, gpu) else None


def work_cycles(plan: Patches, rates: PatchRates = PATCHES) -> float:
    """About how long a block takes for a piece of work."""
    taps = math.prod(plan.operation.window.taps) * plan.chunks
    step = rates.step + rates.product * plan.columns
    sums = plan.groups * plan.units * plan.steps * step + taps * rates.turn
    weights = taps * plan.wide * 4 * CHUNK / rates.copied
    pictures = plan.chunks * plan.used_slots * (CHUNK // PIECE) / rates.fetched
    # With one chunk of pictures at a time, all wait while it comes.
    if plan.pictures == 1:
        sums += pictures
    return rates.work + max(sums, weights, pictures) + rates.put * plan.patches * plan.wide


def image_cycles(plan: Patches, gpu: Generation) -> float:
    """Of a multiprocessor, of one image of many, with what its launch costs."""
    moved = plan.result_words + sum(
        plan.arithmetic.words(channels) * height * width
        for channels, height, width in plan.input_shapes
    )
    return max(_own_cycles(plan), moved / gpu.words_a_cycle) + gpu.launch_cycles


def _own_cycles(plan: Patches) -> float:
    """Of a multiprocessor, of an image: without what device memory moves."""
    return math.prod(plan.blocks) * plan.column_blocks / plan.images * work_cycles(plan)


def best_patches(
    arithmetic: Arithmetic, operation: Operation, gpu: Generation, images: int | None
) -> Patches | None:
    """The best for so many images, or for many; None: there is none."""
    given = operation.alike, operation.forms, operation.gives
    found = _best(arithmetic, _Alike(given, operation), gpu, images)
    return replace(found, operation=operation) if found else None


@dataclass(frozen=True)
class _Alike:
    """An operation that stands for all that are planned the same."""

    given: tuple[object, ...]
    operation: Operation = field(compare=False)


@lru_cache(maxsize=1000)
def _best(
    arithmetic: Arithmetic, alike: _Alike, gpu: Generation, images: int | None
) -> Patches | None:
    plans = _tried(arithmetic, alike, gpu)
    if images is None:
        # Of those that wait for device memory, the one that has least to do besides.
        return min(plans, key=lambda plan: (image_cycles(plan, gpu), _own_cycles(plan)),
                   default=None)  # fmt: skip
    processors = gpu.few.processors
    return min(plans, key=lambda plan: cycles(plan, images, processors), default=None)


@lru_cache(maxsize=100)
def _tried(arithmetic: Arithmetic, alike: _Alike, gpu: Generation) -> tuple[Patches, ...]:
    return tuple(all_patches(arithmetic, alike.operation, gpu))


def cycles(plan: Patches, images: int, processors: int, rates: PatchRates = PATCHES) -> float:
    """About how long a launch takes."""
    waves = -(-plan.works(images) // processors)
    return rates.launch + waves * work_cycles(plan, rates)


def can_be_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> bool:
    """Whether there is such a kernel for an operation."""
    return (
        gpu.warpgroups
        and arithmetic.from_shared
        and operation.kind == "sum"
        and not operation.connected
        and operation.source[0] >= LEAST_CHANNELS
        and all(form == "words" for form in operation.forms)
        and operation.gives in ("words", "panels")
        # Pieces of pixels, and a lane's eight filters, are whole.
        and arithmetic.words(operation.source[0]) % PIECE == 0
        and operation.summed[0] % 8 == 0
    )


def fits(plan: Patches, gpu: Generation) -> bool:
    """Whether there can be such a kernel: it finds room, and the kernel's table of places does for
    the rows and columns that it holds in 15 and 16 bits."""
    window = plan.operation.window
    return (
        min(plan.images, plan.down, plan.across) >= 1
        and plan.groups in GROUPS
        and (plan.images == 1 or plan.blocks == (1, 1))  # of several images, each is whole
        and window.stride[0] * plan.rows < 2**15
        and window.stride[1] * plan.pitch < 2**16
        and (plan.images * plan.across if plan.turned else plan.patches) % plan.groups == 0
        and plan.wide >= COLUMNS
        and plan.wide % (BAND if plan.turned else COLUMNS) == 0
        and plan.columns <= MOST_COLUMNS
        and 2 <= plan.stages <= STAGES
        and 1 <= plan.pictures <= 4
        and plan.shared_bytes <= gpu.shared_bytes - 1024
        and plan.sums + OTHERS <= plan.registers
    )


def all_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> Iterator[Patches]:
    """The plans that are compared: as many stages as fit, of pictures first."""
    if not can_be_patches(arithmetic, operation, gpu):
        return
    filters, height, width = operation.summed
    high, broad = (min(-(-side // PATCH), MOST_PATCHES[-1]) for side in (height, width))
    for turned, unit in ((False, COLUMNS), (True, BAND)):
        columns = -(-filters // unit)
        widths = {unit * -(-columns // count) for count in range(1, columns + 1)}
        for groups, patches, wide in itertools.product(GROUPS, MOST_PATCHES, sorted(widths)):
            for down, across in itertools.product(range(1, high + 1), range(1, broad + 1)):
                images, rest = divmod(patches, down * across)
                if rest or images == 0:
                    continue
                for pictures, stages in itertools.product((3, 2, 1), range(STAGES, 2, -1)):
                    plan = Patches(arithmetic, operation, images, down, across, groups, wide,
                                   stages, pictures, turned)  # fmt: skip
                    if fits(plan, gpu):
                        yield plan
                        break
