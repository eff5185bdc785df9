"""Operations on one image, one after the other, in shared memory: what lies where, who works.

A block of threads is divided into groups of warps; each group takes an image from its input to the
last operation's result, then the next. Weights lie in the block's shared memory once, for all
groups, as far as they fit. A group has two places for pictures, used in turn: an operation reads
one and writes the other. Where a network branches, pictures have places by how long they are needed
(`Layout`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np

from tilewright.fuse.cuda import fold
from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.beside import with_parameters
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Form, Operation
from tilewright.fuse.cuda.packing import (
    Images,
    Packer,
    Table,
    pack,
    pack_all,
    pack_channels,
    tables,
)
from tilewright.fuse.cuda.pictures import SLACK, Picture
from tilewright.fuse.cuda.sums import Shares, Sink, beyond_of, runs_of
from tilewright.model.layers import Convolution, Shape
from tilewright.model.network import Parameters

MOST_AT_ONCE = 4  # words that a thread copies
# Words of parameters that are fetched apart from the first layer's. Chosen: 100 cycles' worth.
WORTH_WAITING_FOR = 1024
BARRIER_BYTES = 16  # where a copy of many bytes arrives
# The type of what a kernel reads.
Source = Literal["uint8", "float32", "words", "panels"]


class Taken(NamedTuple):
    """What an operation reads: a picture in shared memory, or one of the kernel's inputs where it
    lies in device memory; by number."""

    held: bool
    number: int


@dataclass(frozen=True, eq=False)  # compared, and looked up, by what it is, not by what is in it
class Phase:
    """One operation of a stack: the picture it reads, and where its results go.

    In a network that branches, `reads` is all that it takes, and `gives` the number of the picture
    that its results go to.
    """

    operation: Operation
    source: Picture
    target: Picture | None  # None: device memory
    sink: Sink
    shares: Shares | None = None
    shared: bool = True  # its weights lie in shared memory
    reads: tuple[Taken, ...] = ()
    gives: int | None = None
    added: Sink | None = None  # where what is added to its sums lies
    warpgroup: int = 0  # rows of sums that four warps compute at a time; 0: each its own

    @cached_property
    def distant(self) -> Phase:
        """The same with its weights in device memory."""
        return replace(self, shared=False)

    @property
    def weighted(self) -> bool:
        return self.shares is not None or self.operation.kind == "channels"

    @property
    def bias_words(self) -> int:
        if self.shares:
            return 8 * self.shares.all_columns
        return -(-self.operation.result[0] // 8) * 8

    @cached_property
    def weight_words(self) -> int:
        if self.shares is None:
            taps_y, taps_x = _kernel(self.operation)
            pairs = -(-self.operation.result[0] // 2)
            return -(-taps_y * taps_x * pairs * 2 // 8) * 8
        arithmetic, taps = self.shares.arithmetic, self.operation.window.taps
        count, full, half = runs_of(self.shares, self.source)
        step = 8 * arithmetic.step * taps[0] * self.shares.all_columns
        return count * (full * step + half * step // 2)

    @cached_property
    def weight_reads(self) -> int:
        """Words of weights that an image's units read."""
        if self.shares is None:
            return self.weight_words * math.prod(self.operation.result[1:])
        return self.shares.tile_count * self.weight_words

    def work(
        self, arithmetic: Arithmetic, generation: Generation, warps: int = 2, groups: int = 2
    ) -> float:
        """Cycles that it takes of a multiprocessor."""
        return _work(self, arithmetic, generation, warps, groups)

    def wait(self, arithmetic: Arithmetic, warps: int, generation: Generation) -> float:
        """Cycles until the warp with most to do is done."""
        rates = generation.rates(arithmetic)
        active = rates.own_activation * self.operation.activated / (32 * warps)
        if self.shares:
            together, distant = self.warpgroup > 0, not self.shared
            return active + self.shares.wait(self.steps, warps, rates, together, distant)
        outside = self.operation.direct or not all(taken.held for taken in self.reads)
        pairs = math.prod(self.operation.result) / 2
        each = rates.own_each * self.window_values + (generation.pair_wait if outside else 0.0)
        return active + each * pairs / (32 * warps)

    @property
    def window_values(self) -> int:
        """Values that a result of pooling, or of filters that see one channel, is made of."""
        kind = self.operation.kind
        return math.prod(self.operation.window.taps) if kind in ("each", "channels") else 0

    @cached_property
    def steps(self) -> float:
        """Steps of its sums along one row of taps; half ones count half."""
        assert self.shares
        count, full, half = runs_of(self.shares, self.source)
        return count * (full + half / 2)


def _kernel(operation: Operation) -> tuple[int, int]:
    """Taps of a convolution along y and x, without those between them."""
    layer = operation.stages[0].layer
    assert isinstance(layer, Convolution)
    return layer.kernel


# Phases are tried in many plans.
@lru_cache(maxsize=50_000)
def _work(
    phase: Phase, arithmetic: Arithmetic, generation: Generation, warps: int, groups: int
) -> float:
    operation, shares, rates = phase.operation, phase.shares, generation.rates(arithmetic)
    active = rates.activation * operation.activated / 128
    if shares:
        distant = 0 if phase.shared else rates.distant * phase.weight_reads
        together = phase.warpgroup > 0
        return active + distant + shares.work(phase.steps, rates, warps, groups, together)
    if operation.kind == "softmax":
        return active
    if operation.kind == "join":
        each = len(operation.takes) / generation.joined_a_cycle
    elif operation.kind == "channels":
        each = rates.channel * phase.window_values
    else:
        each = (rates.window if operation.sticks_out else rates.each) * phase.window_values
    return active + each * math.prod(operation.result) / 2


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
class Layout:
    """Pictures of a kernel whose operations branch: where each begins, and the last word of all.

    The first of them are filled with inputs: `filled` has the numbers of these.
    """

    pictures: tuple[Picture, ...]
    places: tuple[int, ...]
    filled: tuple[int, ...]
    words: int


@dataclass(frozen=True)
class Stack:
    """A kernel's plan. `given` and `gives` are the forms in which images come and results go.

    `inputs` are the operations whose results it reads (-1: the pixels, which come first), `given`
    is the first one's form and `more_given` the others'.
    """

    arithmetic: Arithmetic
    phases: tuple[Phase, ...]
    warps: int  # of a group
    groups: int
    given: Form
    gives: Form
    result_words: int  # of an image in device memory
    staged_bytes: int  # of an image that are fetched ahead, if it comes as bytes
    strip: Strip | None = None
    inputs: tuple[int, ...] = (-1,)
    more_given: tuple[Form, ...] = ()
    input_shapes: tuple[Shape, ...] = ()
    layout: Layout | None = None
    held: int = 1  # images that the last fully connected layer takes at a time (`held`)

    @property
    def all_given(self) -> tuple[Form, ...]:
        return (self.given, *self.more_given)

    @property
    def last(self) -> int:
        """The operation whose result it gives."""
        return self.phases[-1].operation.index

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All that lie in a group's memory; of a chain, those that the operations read."""
        return self.layout.pictures if self.layout else tuple(p.source for p in self.phases)

    @property
    def filled(self) -> tuple[int, ...]:
        """The inputs that the first pictures are filled with."""
        return self.layout.filled if self.layout else (0,)

    def reads(self, index: int) -> tuple[Taken, ...]:
        """What a phase takes."""
        phase = self.phases[index]
        return phase.reads or (Taken(True, index),)

    def gives_to(self, index: int) -> int | None:
        """The picture that a phase's results go to."""
        phase = self.phases[index]
        if phase.target is None:
            return None
        return index + 1 if self.layout is None else phase.gives

    def readers(self, picture: int) -> list[Phase]:
        """The operations that read a picture with their windows."""
        if self.layout is None:
            return [self.phases[picture]]
        return [
            phase for phase in self.phases
            if phase.operation.kind != "join" and phase.reads[0] == (True, picture)
        ]  # fmt: skip

    @property
    def threads(self) -> int:
        return 32 * self.warps * self.groups

    @property
    def operations(self) -> tuple[Operation, ...]:
        return tuple(phase.operation for phase in self.phases)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for operation in self.operations for name in operation.names)

    @property
    def sums(self) -> list[Phase]:
        return [phase for phase in self.phases if phase.shares]

    @cached_property
    def arenas(self) -> tuple[int, int, int]:
        """Words of the two places for pictures, and of that for floats."""
        return _arenas(self.phases[:-2] if self.held > 1 else self.phases)

    @property
    def _words_of_one(self) -> int:
        """Of the places for one image's pictures."""
        return self.layout.words if self.layout else sum(self.arenas)

    @property
    def arena_words(self) -> int:
        """Of all pictures' places."""
        return self._words_of_one + sum(self.held * each for each in self.apart.values())

    @cached_property
    def apart(self) -> dict[int, int]:
        """Pictures that are held for several images, and words from one image's to the next."""
        if self.held == 1:
            return {}
        features, scores = (self.reads(len(self.phases) - each)[0].number for each in (2, 1))
        # A multiple of 4, but not of 8: rows of an operand then lie in different banks.
        size = -(-self.pictures[features].size // 4)
        return {features: 4 * (size + 1 - size % 2), scores: self.pictures[scores].size}

    def place(self, index: int) -> int:
        """Where in a group's memory a picture begins; of several images, the first one's."""
        if index in self.apart:
            others = [words for number, words in self.apart.items() if number < index]
            return self._words_of_one + self.held * sum(others)
        if self.layout:
            return self.layout.places[index]
        first, second, _ = self.arenas
        if not self.phases[index].source.floats:
            return first if index % 2 else 0
        before = [phase.source for phase in self.phases[:index]]
        return first + second + sum(each.size for each in before if each.floats)

    def dirty(self, index: int) -> int:
        """Words of a picture where others are written, too."""
        if index in self.apart:
            return 0
        if self.layout:
            at, size = self.place(index), self.pictures[index].size
            others = [
                (self.layout.places[number], picture)
                for number, picture in enumerate(self.layout.pictures)
                if number != index and number not in self.apart
            ]
            ends = [
                place + picture.size - at
                for place, picture in others
                if place < at + size and at < place + picture.size and place != at
            ]
            same = [picture.size for place, picture in others if place == at]
            return min(size, max([*ends, *same], default=0))
        if self.phases[index].source.floats:
            return 0
        sizes = [
            phase.source.size
            for other, phase in enumerate(self.phases)
            if other != index and other % 2 == index % 2 and not phase.source.floats
            and other not in self.apart
        ]  # fmt: skip
        return min(self.phases[index].source.size, max(sizes, default=0))

    def gaps(self, index: int) -> tuple[int, int]:
        """Words after each of a picture's pixels, and after its last row, that are read as if they
        were."""
        source, between, after = self.pictures[index], 0, 0
        for phase in self.readers(index):
            if phase.shares is not None:
                beyond = beyond_of(phase.shares, source)
                gap = 0 if source.contiguous else min(beyond, source.pitch - source.words)
                between, after = max(between, gap), max(after, SLACK if beyond else 0)
        return between, after

    def around(self, index: int) -> bool:
        """Whether a picture has words around its pixels to be kept at zero."""
        source = self.pictures[index]
        unit = source.channels if source.tight else source.pitch
        filled = source.across * unit == source.row * (2 if source.tight else 1)
        return source.padding != (0, 0) or not filled or any(self.gaps(index))

    def copied_at_once(self, index: int) -> int:
        """Words of another kernel that a thread copies at once into a picture."""
        picture = self.pictures[index]
        places = self.place(index), self.shared_words, self.group_words
        return math.gcd(*places, picture.row, picture.pitch, picture.words, MOST_AT_ONCE)

    @property
    def group_words(self) -> int:
        return self.arena_words + self.staged_words

    @property
    def staged_words(self) -> int:
        return -(-self.staged_bytes // 16) * 4

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        """Where in the parameters each layer's weights and bias begin; `all`: their size."""
        places, at = {}, 0
        order = sorted(
            (phase for phase in self.phases if phase.weighted), key=lambda phase: not phase.shared
        )
        for phase in order:
            places[f"{phase.operation.names[0]}.bias"] = at
            at += phase.bias_words
        for phase in order:
            places[f"{phase.operation.names[0]}.weight"] = at
            at += phase.weight_words
        places["all"] = at
        return places

    @cached_property
    def shared_words(self) -> int:
        """Of the parameters, those in shared memory: the first."""
        return sum(
            phase.bias_words + (phase.weight_words if phase.shared else 0)
            for phase in self.phases
            if phase.weighted
        )

    @cached_property
    def late_words(self) -> int:
        """Words of the parameters in shared memory, the last, that are not waited for before
        anything is done: where a group is alone, and an image may be, too, those of all layers but
        the first."""
        first, phases = self.phases[0], len(self.phases) - 2 * bool(self.apart)
        if self.groups > 1 or phases < 1 or not (first.weighted and first.shared):
            return 0
        begin = self.parameter_words[f"{first.operation.names[0]}.weight"]
        late = self.shared_words - -(-(begin + first.weight_words) // 4) * 4
        return late if late >= WORTH_WAITING_FOR else 0

    @property
    def shared_bytes(self) -> int:
        words = self.shared_words + self.groups * self.group_words
        return 4 * words + (BARRIER_BYTES if self.late_words else 0)

    def parameters(self, given: Parameters) -> Words:
        """All biases, then all weights, as the kernel reads them."""
        packers: dict[str, Packer] = {}
        for phase in self.phases:
            if phase.shares:
                stage = phase.operation.stages[0]
                given = with_parameters(phase.operation.stages, given, self.arithmetic)
                if phase.operation.folded:
                    given = {**given, **fold.parameters(phase.operation, given)}
                packers[stage.name] = partial(
                    pack, phase.shares, phase.source, stage, phase.warpgroup > 0
                )
            elif phase.weighted:
                packers[phase.operation.names[0]] = partial(pack_channels, self.arithmetic)
        return pack_all(given, self.parameter_words, self.arithmetic, packers)

    @cached_property
    def tables(self) -> tuple[Table, dict[str, int]]:
        """All sums' tables, one after the other, and where each begins."""
        found: list[Table] = []
        places, at = {}, 0
        for phase in self.sums:
            assert phase.shares
            places[phase.operation.names[0]] = at
            several = self.apart and phase is self.phases[-2]
            images = Images(self.held, *self.apart.values()) if several else None
            found.append(tables(phase.shares, phase.source, phase.sink, phase.added, images))
            at += len(found[-1])
        return (np.concatenate(found) if found else np.zeros(1, np.int32)), places

    def work(self, generation: Generation) -> float:
        """Cycles of a multiprocessor that an image, or a strip of one, takes."""
        own = generation.image_work + self.fetched(generation)
        return own + sum(
            phase.work(self.arithmetic, generation, self.warps, self.groups) / images
            for phase, images in zip(self.phases, self._taken, strict=True)
        )

    def wait(self, generation: Generation) -> float:
        """Cycles of a group that it takes, if it has all it needs."""
        rates = generation.rates(self.arithmetic)
        fill = rates.fill * self.unstaged / (32 * self.warps)
        return generation.image_wait + fill + sum(
            phase.wait(self.arithmetic, self.warps, generation) / images
            for phase, images in zip(self.phases, self._taken, strict=True)
        )  # fmt: skip

    @property
    def _taken(self) -> list[int]:
        """How many images each phase takes at a time."""
        several = min(2, len(self.phases)) if self.held > 1 else 0
        return [1] * (len(self.phases) - several) + [self.held] * several

    @property
    def unstaged(self) -> int:
        """Reads of an image's values, or words, from device memory, that threads wait for."""
        found = 0
        for number, which in enumerate(self.filled):
            picture = self.pictures[number]
            if self.all_given[which] == "words":
                words = picture.words * picture.height * picture.width
                found += words // self.copied_at_once(number)
            elif not self.staged_bytes:
                found += picture.channels * picture.height * picture.width
        return found

    def fetched(self, generation: Generation) -> float:
        """Cycles in which an image's values, or words, come from device memory."""
        found = 0
        for number, which in enumerate(self.filled):
            picture = self.pictures[number]
            each = picture.words if self.all_given[which] == "words" else picture.channels
            found += each * picture.height * picture.width
        return generation.rates(self.arithmetic).filled * found / 32

    def written(self, generation: Generation) -> float:
        """Cycles in which an image's results go to device memory."""
        rates, last = generation.rates(self.arithmetic), self.phases[-1]
        cycles, shares = rates.written, last.shares
        if shares and self.gives != "output":
            per_word = self.arithmetic.per_word
            # Parts of 128 bytes that are written one after the other leave the second cache alone.
            if shares.splits > self.warps and 32 * shares.columns // per_word % 128:
                cycles += rates.late
            # Of halves, a column without a neighbour is half of the 32 bytes that memory takes.
            if per_word == 2 and (shares.columns % 2 or last.operation.result[0] % 16):
                cycles += rates.odd
        return cycles * self.result_words

    def moved(self, generation: Generation) -> float:
        """The same, and in which that comes which is added to sums."""
        added = sum(
            self.arithmetic.words(channels) * height * width
            for which, (channels, height, width) in enumerate(self.input_shapes)
            if self.all_given[which] == "words" and which not in self.filled
        )
        return self.written(generation) + added / generation.words_a_cycle

    def cycles(self, generation: Generation) -> float:
        """About how many of a multiprocessor's cycles an image takes; for comparison only."""
        work = self.work(generation)
        wait = self.wait(generation)
        # Groups fill each other's waits.
        cycles = math.hypot(work, wait / self.groups)
        if self.strip is None:
            return cycles
        return generation.rates(self.arithmetic).strips * len(self.strip.starts) * cycles


def _arenas(phases: Sequence[Phase]) -> tuple[int, int, int]:
    sizes = [0, 0, 0]
    for index, phase in enumerate(phases):
        if phase.source.floats:
            sizes[2] += phase.source.size
        else:
            sizes[index % 2] = max(sizes[index % 2], phase.source.size)
    return sizes[0], sizes[1], sizes[2]
