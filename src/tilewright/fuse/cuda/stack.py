"""Operations on one image, one after the other, in shared memory: what lies where, who works.

A block of threads is divided into groups of warps; each group takes an image from its input to the
last operation's result, then the next. Weights lie in the block's shared memory once, for all
groups, as far as they fit. A group has two places for pictures, used in turn: an operation reads
one and writes the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.pictures import Picture, plain, runs, steps
from tilewright.fuse.cuda.sums import (
    WEIGHTS,
    Shares,
    Sink,
    Table,
    into,
    pack,
    planes,
    share,
    source_picture,
    tables,
)
from tilewright.model.layers import Shape
from tilewright.model.network import Parameters
from tilewright.runtime.dialect import DoesNotFit
from tilewright.runtime.multiprocessor import PARTS, REGISTERS, WARP

# Shared memory that a block may have: all that a multiprocessor of these architectures has, less
# what the system keeps of it.
SHARED_BYTES = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 120: 99 * 1024}
# Warps of a group, and groups of a block, that are tried.
SHAPES = ((2, 4), (2, 5), (2, 6), (2, 8), (4, 2), (4, 3), (4, 4), (8, 1), (8, 2), (16, 1))
# What an image, or a strip of one, costs besides: cycles of the multiprocessor, and of its group.
# Fitted like the rates of sums.
IMAGE_WORK, IMAGE_WAIT = 510, 5080
# Reads of pooling, and other work on single values, in a cycle of a multiprocessor.
EACH_A_CYCLE = 16

Form = Literal["pixels", "words", "output"]


@dataclass(frozen=True)
class Phase:
    """One operation of a stack: the picture it reads, and where its results go."""

    operation: Operation
    source: Picture
    target: Picture | None  # None: device memory
    sink: Sink
    shares: Shares | None = None
    shared: bool = True  # its weights lie in shared memory


@dataclass(frozen=True)
class Strip:
    """Part of an image's rows: where images do not fit, they are worked on in strips."""

    starts: tuple[int, ...]  # the first row of sums (or windows) of each
    source: Shape  # of the whole image, and of its result
    result: Shape
    padding: int
    stride: int
    unit: int  # rows of sums for a row of the result


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

    @property
    def group_words(self) -> int:
        return sum(self.arenas) + -(-self.staged_bytes // 16) * 4

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        """Where in the parameters each layer's weights and bias begin; `shared`, `all`: sizes."""
        places, at = {}, 0
        order = sorted(self.sums, key=lambda phase: not phase.shared)
        for phase in order:
            assert phase.shares
            places[f"{phase.operation.names[0]}.bias"] = at
            at += 8 * phase.shares.all_columns
        for phase in order:
            if not phase.shared and "shared" not in places:
                places["shared"] = at
            places[f"{phase.operation.names[0]}.weight"] = at
            at += weight_words(phase)
        places["all"] = at
        places.setdefault("shared", at)
        return places

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.parameter_words["shared"] + self.groups * self.group_words)

    def parameters(self, given: Parameters) -> Words:
        """All biases, then all weights, as the kernel reads them."""
        packed = np.zeros(self.parameter_words["all"], np.uint32)
        for phase in self.sums:
            name = phase.operation.names[0]
            assert phase.shares
            weight = given[f"{name}.weight"]
            words = pack(phase.shares, phase.source, weight)
            at = self.parameter_words[f"{name}.weight"]
            packed[at : at + len(words)] = words
            bias = given.get(f"{name}.bias")
            if bias is not None:
                at = self.parameter_words[f"{name}.bias"]
                packed[at : at + len(bias)] = bias.view(np.uint32)
        return packed

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

    def cycles(self) -> float:
        """About how many of a multiprocessor's cycles an image takes; for comparison only."""
        work, wait = float(IMAGE_WORK), float(IMAGE_WAIT)
        for phase in self.phases:
            if phase.shares:
                length = steps(
                    self.arithmetic,
                    phase.source,
                    phase.operation.window.taps[1],
                    phase.shares.reads,
                )
                work += phase.shares.work(length)
                wait += phase.shares.wait(length, self.warps)
                if not phase.shared:
                    work += _weight_reads(phase) / phase.shares.rates.distant_words
            elif phase.operation.kind == "each":
                outputs = math.prod(phase.operation.result) / 2
                work += outputs * math.prod(phase.operation.window.taps) / EACH_A_CYCLE
        parts = len(self.strip.starts) if self.strip else 1
        # Groups fill each other's waits.
        return parts * math.hypot(work, wait / self.groups)


def lane_registers(warps: int) -> int:
    """Registers that a lane may have in a block of so many warps, alone on its multiprocessor."""
    in_a_part = -(-warps // PARTS)
    return min(255, REGISTERS // PARTS // (WARP * in_a_part) // 8 * 8)


def _weight_reads(phase: Phase) -> int:
    """Words of weights that an image's units read."""
    assert phase.shares
    return len(phase.shares.tiles) * weight_words(phase)


def _arenas(phases: Sequence[Phase]) -> tuple[int, int, int]:
    sizes = [0, 0, 0]
    for index, phase in enumerate(phases):
        if phase.source.floats:
            sizes[2] += phase.source.size
        else:
            sizes[index % 2] = max(sizes[index % 2], phase.source.size)
    return sizes[0], sizes[1], sizes[2]


def shared_bytes(capability: int) -> int:
    known = [number for number in SHARED_BYTES if number <= capability]
    if not known:
        raise DoesNotFit(
            f"sm_{capability} has no tensor cores that add in float32: sm_80 is needed"
        )
    return SHARED_BYTES[max(known)]


def weight_words(phase: Phase) -> int:
    assert phase.shares
    shares = phase.shares
    arithmetic, taps = shares.arithmetic, phase.operation.window.taps
    count, full, half = runs(arithmetic, phase.source, taps[1], shares.reads)
    step = 8 * arithmetic.step * taps[0] * shares.all_columns
    return count * (full * step + half * step // 2)


def stack(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    capability: int,
) -> Stack:
    """The best plan for these operations in one kernel; DoesNotFit if there is none."""
    for operation, strip in _divisions(operations):
        parts = operations if strip is None else [operation]
        plans = [
            plan
            for warps, groups in SHAPES
            for weight in WEIGHTS
            for plan in _plans(
                arithmetic, parts, given, gives, warps, groups, capability, weight, strip
            )
        ]
        if plans:
            return min(plans, key=lambda plan: (plan.cycles(), -plan.groups))
    names = ", ".join(name for operation in operations for name in operation.names)
    raise DoesNotFit(
        f"{names}: does not fit into {shared_bytes(capability):,} bytes of shared memory"
    )


def _divisions(operations: Sequence[Operation]) -> Iterable[tuple[Operation, Strip | None]]:
    """Whole images; then, if there is but one operation, strips of fewer and fewer rows."""
    first = operations[0]
    yield first, None
    if len(operations) > 1 or first.kind == "softmax" or first.connected:
        return
    unit = 2 if first.kind == "sum" and first.pool else 1
    channels, _, width = first.source
    rows = first.summed[1] // unit * unit
    taps, stride, padding = (
        first.window.taps[0], first.window.stride[0], first.window.padding
    )  # fmt: skip
    for parts in range(2, rows // unit + 1):
        each = -(-rows // unit // parts) * unit
        starts = tuple(min(start, rows - each) for start in range(0, rows, each))
        if len(starts) != parts:
            continue
        tall = (each - 1) * stride + taps
        yield (
            replace(
                first,
                source=(channels, tall, width),
                summed=(first.summed[0], each, first.summed[2]),
                result=(first.result[0], each // unit, first.result[2]),
                window=replace(first.window, padding=(0, padding[1])),
            ),
            Strip(starts, first.source, first.result, padding[0], stride, unit),
        )


def _plans(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    warps: int,
    groups: int,
    capability: int,
    weight: float,
    strip: Strip | None,
) -> Iterable[Stack]:
    """The plan for groups of so many warps, if it fits; weights stay out if they must."""
    registers = lane_registers(warps * groups)
    phases = _phases(arithmetic, operations, given, gives, warps, registers, weight, strip)
    last = strip.result if strip else operations[-1].result
    words = plain(arithmetic, last, floats=gives == "output")
    result = words.height * words.row
    staged = 0
    if given == "pixels" and strip is None:
        channels, height, width = operations[0].source
        pixels = channels * height * width
        staged = pixels if pixels % 16 == 0 else 0
    # Weights stay out of shared memory, one layer's after another's, those first that are read
    # least often.
    order = sorted((phase for phase in phases if phase.shares), key=_weight_reads)
    for outside in range(len(order) + 1):
        left = tuple(
            replace(phase, shared=phase not in order[:outside]) if phase.shares else phase
            for phase in phases
        )
        for ahead in dict.fromkeys((staged, 0)):
            plan = Stack(arithmetic, left, warps, groups, given, gives, result, ahead, strip)
            if plan.shared_bytes <= shared_bytes(capability):
                yield plan
                break


def _phases(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    warps: int,
    registers: int,
    weight: float,
    strip: Strip | None,
) -> tuple[Phase, ...]:
    shares = [
        share(operation, arithmetic, warps, registers, weight) if operation.kind == "sum" else None
        for operation in operations
    ]
    sources = []
    for index, (operation, shared) in enumerate(zip(operations, shares, strict=True)):
        if shared is None:
            # Scores of a softmax stay as exact as they were summed, and so do probabilities.
            floats = operation.kind == "softmax" or (
                index > 0 and operations[index - 1].kind == "softmax"
            )
            sources.append(plain(arithmetic, operation.source, floats))
        else:
            sources.append(source_picture(shared, index == 0 and given == "pixels"))
    phases = []
    for index, (operation, shared) in enumerate(zip(operations, shares, strict=True)):
        target = sources[index + 1] if index + 1 < len(operations) else None
        rounded = index + 1 < len(operations) and operations[index + 1].kind == "sum"
        if target is not None and operations[index + 1].kind == "softmax":
            sink = planes(operation.result)
        elif target is not None:
            sink = into(target, arithmetic, rounded)
        elif gives == "output":
            sink = planes(strip.result if strip else operation.result)
        else:
            sink = into(plain(arithmetic, operation.result), arithmetic, rounded=True)
        phases.append(Phase(operation, sources[index], target, sink, shared))
    return tuple(phases)
