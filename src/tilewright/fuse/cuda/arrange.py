"""Which plan a stack of operations gets: all that fit are compared by estimate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.limits import lane_registers, shared_bytes
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.stack import Form, Phase, Rows, Stack, Strip, weight_reads, weight_words
from tilewright.fuse.cuda.sums import WEIGHTS, into, planes, share, source_picture
from tilewright.runtime.dialect import DoesNotFit

# Operations that strips of an image may go through together: each makes them overlap more.
MOST_IN_STRIPS = 3
# Neighbouring strips compute some rows both: this much more work than whole images at most.
MOST_TWICE = 1.25
# Warps of a group, and groups of a block, that are tried.
SHAPES = ((2, 4), (2, 5), (2, 6), (2, 8), (4, 2), (4, 3), (4, 4), (8, 1), (8, 2), (16, 1))


def stack(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    capability: int,
    rounded: bool = False,
) -> Stack:
    """The best plan for these operations in one kernel; DoesNotFit if there is none.

    `rounded`: words that it gives are a sum's operands.
    """
    for parts, strip in _divisions(operations):
        if 4 * _least_words(arithmetic, parts) > shared_bytes(capability):
            continue
        settings = (given, gives, rounded, capability)
        tried = (
            _plan(arithmetic, parts, *settings, warps, groups, weight, strip)
            for warps, groups in SHAPES
            for weight in WEIGHTS
        )
        plans = [plan for plan in tried if plan is not None]
        if plans:
            return min(plans, key=lambda plan: (plan.cycles(), -plan.groups))
    names = ", ".join(name for operation in operations for name in operation.names)
    raise DoesNotFit(
        f"{names}: does not fit into {shared_bytes(capability):,} bytes of shared memory"
    )


def _divisions(
    operations: Sequence[Operation],
) -> Iterable[tuple[Sequence[Operation], Strip | None]]:
    """Whole images; then, of a few operations, strips of fewer and fewer rows."""
    yield operations, None
    if len(operations) > MOST_IN_STRIPS or any(
        each.kind == "softmax" or each.connected for each in operations
    ):
        return
    last = operations[-1]
    unit = _unit(last)
    rows = last.summed[1] // unit * unit
    heights = {-(-rows // unit // round(1.25**power)) * unit for power in range(3, 60)}
    for each in sorted(heights - {0}, reverse=True):
        starts = tuple(min(start, rows - each) for start in range(0, rows, each))
        if len(starts) == 1:
            continue
        parts, pictures = _parts(operations, each)
        alone = len(operations) == 1
        if alone or len(starts) * _work(parts) <= MOST_TWICE * _work(operations):
            yield parts, Strip(starts, operations[0].source, last.result, unit, pictures)


def _parts(operations: Sequence[Operation], rows: int) -> tuple[list[Operation], tuple[Rows, ...]]:
    """The operations on a strip, so many rows of the last one's sums, and what each reads."""
    parts: list[Operation] = []
    pictures: list[Rows] = []
    stride, padding = 1, 0  # from the strip's start to the first row of sums
    for operation in reversed(operations):
        unit, window = _unit(operation), operation.window
        channels, height, width = operation.source
        tall = (rows - 1) * window.stride[0] + window.taps[0]
        parts.append(
            replace(
                operation,
                source=(channels, tall, width),
                summed=(operation.summed[0], rows, operation.summed[2]),
                result=(operation.result[0], rows // unit, operation.result[2]),
                window=replace(window, padding=(0, window.padding[1])),
            )
        )
        stride, padding = stride * window.stride[0], padding * window.stride[0] + window.padding[0]
        pictures.append(Rows(stride, padding, height))
        if len(parts) < len(operations):
            before = _unit(operations[-1 - len(parts)])
            rows, stride, padding = tall * before, stride * before, padding * before
    return parts[::-1], tuple(pictures[::-1])


def _work(operations: Sequence[Operation]) -> int:
    """Values that all sums, or windows, of a whole image or of a strip take in."""
    return sum(
        math.prod(each.summed) * math.prod(each.window.taps)
        * (each.source[0] if each.kind == "sum" else 1)
        for each in operations
    )  # fmt: skip


def _least_words(arithmetic: Arithmetic, operations: Sequence[Operation]) -> int:
    """That the pictures take at least, by turns in two places; a quick way to say no."""
    words = [
        arithmetic.words(channels) * height * width
        for channels, height, width in (each.source for each in operations)
    ]
    return max(words[::2]) + max(words[1::2], default=0)


def _unit(operation: Operation) -> int:
    """Rows of sums for a row of the result."""
    return 2 if operation.kind == "sum" and operation.pool else 1


def _plan(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    rounded: bool,
    capability: int,
    warps: int,
    groups: int,
    weight: float,
    strip: Strip | None,
) -> Stack | None:
    """The plan for groups of so many warps, if it fits; weights stay out if they must."""
    registers = lane_registers(warps * groups)
    phases = _phases(arithmetic, operations, given, gives, rounded, warps, registers, weight, strip)
    last = strip.result if strip else operations[-1].result
    words = plain(arithmetic, last, floats=gives == "output")
    result = words.height * words.row
    staged = 0
    if given == "pixels" and strip is None:
        channels, height, width = operations[0].source
        pixels = channels * height * width
        staged = pixels if pixels % 16 == 0 else 0
    whole = Stack(arithmetic, phases, warps, groups, given, gives, result, staged, strip)
    # Weights stay out of shared memory, one layer's after another's, those first that are read
    # least often; before that, nothing is fetched ahead.
    order = sorted((phase for phase in phases if phase.shares), key=weight_reads)
    excess = whole.shared_bytes - shared_bytes(capability)
    unstaged = replace(whole, staged_bytes=0)
    without = whole.shared_bytes - unstaged.shared_bytes
    outside = 0
    while excess > without and outside < len(order):
        excess -= 4 * weight_words(order[outside])
        outside += 1
    if excess > without:
        return None
    left = order[:outside]
    room = (0 if excess <= 0 else without) - excess
    for phase in reversed(left[:]):  # those that still fit go back
        if 4 * weight_words(phase) <= room:
            left.remove(phase)
            room -= 4 * weight_words(phase)
    kept = tuple(replace(each, shared=False) if each in left else each for each in phases)
    return replace(whole if excess <= 0 else unstaged, phases=kept)


def _phases(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    rounded: bool,
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
        if target is not None and operations[index + 1].kind == "softmax":
            sink = planes(operation.result)
        elif target is not None:
            sink = into(target, arithmetic, rounded=operations[index + 1].kind == "sum")
        elif gives == "output":
            sink = planes(strip.result if strip else operation.result)
        else:
            sink = into(plain(arithmetic, operation.result), arithmetic, rounded)
        phases.append(Phase(operation, sources[index], target, sink, shared))
    return tuple(phases)
