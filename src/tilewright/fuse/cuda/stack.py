"""Operations on one image, one after the other, in shared memory: what lies where, who works.

A block of threads is divided into groups of warps; each group takes an image from its input to the
last operation's result, then the next. Weights lie in the block's shared memory once, for all
groups, as far as they fit. A group has two places for pictures, used in turn: an operation reads
one and writes the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Literal

import numpy as np

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.packing import Table, pack, pack_all, tables
from tilewright.fuse.cuda.pictures import SLACK, Picture, runs, steps, words_beyond
from tilewright.fuse.cuda.sums import Shares, Sink
from tilewright.model.layers import Shape
from tilewright.model.network import Parameters

Form = Literal["pixels", "words", "output"]
# The type of what a kernel reads.
Source = Literal["uint8", "float32", "words"]


@dataclass(frozen=True, eq=False)  # compared, and looked up, by what it is, not by what is in it
class Phase:
    """One operation of a stack: the picture it reads, and where its results go."""

    operation: Operation
    source: Picture
    target: Picture | None  # None: device memory
    sink: Sink
    shares: Shares | None = None
    shared: bool = True  # its weights lie in shared memory

    @cached_property
    def weight_words(self) -> int:
        assert self.shares
        arithmetic, taps = self.shares.arithmetic, self.operation.window.taps
        count, full, half = runs(arithmetic, self.source, taps[1], self.shares.reads)
        step = 8 * arithmetic.step * taps[0] * self.shares.all_columns
        return count * (full * step + half * step // 2)

    @cached_property
    def weight_reads(self) -> int:
        """Words of weights that an image's units read."""
        assert self.shares
        return self.shares.tile_count * self.weight_words

    def work(self, generation: Generation) -> float:
        """Cycles that it takes of a multiprocessor."""
        return _work(self, generation)

    def wait(self, warps: int, generation: Generation) -> float:
        """Cycles until the warp with most to do is done."""
        if self.shares is None:
            return 0.0
        rates = generation.rates(self.shares.arithmetic.tensor)
        return self.shares.wait(self.steps, warps, rates)

    @cached_property
    def steps(self) -> float:
        """Steps of its sums along one row of taps."""
        assert self.shares
        taps_x = self.operation.window.taps[1]
        return steps(self.shares.arithmetic, self.source, taps_x, self.shares.reads)


# Phases are tried in many plans.
@lru_cache(maxsize=50_000)
def _work(phase: Phase, generation: Generation) -> float:
    operation, shares = phase.operation, phase.shares
    if shares:
        rates = generation.rates(shares.arithmetic.tensor)
        distant = 0 if phase.shared else phase.weight_reads / rates.distant_words
        return shares.work(phase.steps, rates) + distant
    if operation.kind == "each":
        outputs = math.prod(operation.result) / 2
        return outputs * math.prod(operation.window.taps) / generation.each_a_cycle
    return 0.0


@dataclass(frozen=True)
class Rows:
    """Which rows of a whole picture, `height` high, a strip's begins with: by the strip's start."""

    stride: int
    padding: int
    height: int

    def first(self, start: int) -> int:
        return start * self.stride - self.padding


@dataclass(frozen=True)
class Strip:
    """Part of an image's rows: where images do not fit, they are worked on in strips.

    Neighbouring strips both compute the rows that both need of what is between two operations.
    """

    starts: tuple[int, ...]  # the first row of the last operation's sums (or windows) of each
    source: Shape  # of the whole image, and of its result
    result: Shape
    unit: int  # rows of sums for a row of the result
    pictures: tuple[Rows, ...]  # that each operation reads


@dataclass(frozen=True)
class Stack:
    """A kernel's plan. `given` and `gives` are the forms in which images come and results go."""

    arithmetic: Arithmetic
    phases: tuple[Phase, ...]
    warps: int  # of a group
    groups: int
    given: Form
    gives: Form
    result_words: int  # of an image in device memory
    staged_bytes: int  # of an image that are fetched ahead, if it comes as bytes
    strip: Strip | None = None

    @property
    def threads(self) -> int:
        return 32 * self.warps * self.groups

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(phase.operation for phase in self.phases)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for operation in self.operations for name in operation.names)

    @property
    def sums(self) -> list[Phase]:
        return [phase for phase in self.phases if phase.shares]

    @cached_property
    def arenas(self) -> tuple[int, int, int]:
        """Words of the two places for pictures, and of that for floats."""
        return _arenas(self.phases)

    def place(self, index: int) -> int:
        """Where in a group's memory the picture that a phase reads begins."""
        first, second, _ = self.arenas
        if not self.phases[index].source.floats:
            return first if index % 2 else 0
        before = [phase.source for phase in self.phases[:index]]
        return first + second + sum(each.size for each in before if each.floats)

    def dirty(self, index: int) -> int:
        """Words of the picture that a phase reads where others are written, too."""
        if self.phases[index].source.floats:
            return 0
        others = [
            phase.source.size
            for other, phase in enumerate(self.phases)
            if other != index and other % 2 == index % 2 and not phase.source.floats
        ]
        return min(self.phases[index].source.size, max(others, default=0))

    def gaps(self, index: int) -> tuple[int, int]:
        """Words after each pixel, and after the last row, that a phase reads as if they were."""
        phase = self.phases[index]
        if phase.shares is None:
            return 0, 0
        source, taps_x = phase.source, phase.operation.window.taps[1]
        beyond = words_beyond(self.arithmetic, source, taps_x, phase.shares.reads)
        between = 0 if source.contiguous else min(beyond, source.pitch - source.words)
        return between, SLACK if beyond else 0

    def around(self, index: int) -> bool:
        """Whether the picture that a phase reads has words around its pixels to be kept at zero."""
        source = self.phases[index].source
        unit = source.channels if source.tight else source.pitch
        filled = source.across * unit == source.row * (2 if source.tight else 1)
        return source.padding != (0, 0) or not filled or any(self.gaps(index))

    @property
    def group_words(self) -> int:
        return sum(self.arenas) + self.staged_words

    @property
    def staged_words(self) -> int:
        return -(-self.staged_bytes // 16) * 4

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        """Where in the parameters each layer's weights and bias begin; `all`: their size."""
        places, at = {}, 0
        order = sorted(self.sums, key=lambda phase: not phase.shared)
        for phase in order:
            assert phase.shares
            places[f"{phase.operation.names[0]}.bias"] = at
            at += 8 * phase.shares.all_columns
        for phase in order:
            places[f"{phase.operation.names[0]}.weight"] = at
            at += phase.weight_words
        places["all"] = at
        return places

    @cached_property
    def shared_words(self) -> int:
        """Of the parameters, those in shared memory: the first."""
        return sum(
            8 * phase.shares.all_columns + (phase.weight_words if phase.shared else 0)
            for phase in self.phases
            if phase.shares
        )

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.shared_words + self.groups * self.group_words)

    def parameters(self, given: Parameters) -> Words:
        """All biases, then all weights, as the kernel reads them."""
        packers = {}
        for phase in self.sums:
            assert phase.shares
            packers[phase.operation.names[0]] = partial(pack, phase.shares, phase.source)
        return pack_all(given, self.parameter_words, self.arithmetic, packers)

    @cached_property
    def tables(self) -> tuple[Table, dict[str, int]]:
        """All sums' tables, one after the other, and where each begins."""
        found: list[Table] = []
        places, at = {}, 0
        for phase in self.sums:
            assert phase.shares
            places[phase.operation.names[0]] = at
            found.append(tables(phase.shares, phase.source, phase.sink))
            at += len(found[-1])
        return (np.concatenate(found) if found else np.zeros(1, np.int32)), places

    def cycles(self, generation: Generation) -> float:
        """About how many of a multiprocessor's cycles an image takes; for comparison only."""
        work = generation.image_work + sum(phase.work(generation) for phase in self.phases)
        waits = (phase.wait(self.warps, generation) for phase in self.phases)
        wait = generation.image_wait + sum(waits)
        parts = len(self.strip.starts) if self.strip else 1
        # Groups fill each other's waits.
        return parts * math.hypot(work, wait / self.groups)


def _arenas(phases: Sequence[Phase]) -> tuple[int, int, int]:
    sizes = [0, 0, 0]
    for index, phase in enumerate(phases):
        if phase.source.floats:
            sizes[2] += phase.source.size
        else:
            sizes[index % 2] = max(sizes[index % 2], phase.source.size)
    return sizes[0], sizes[1], sizes[2]
