"""Which plan a stack of operations gets: all that fit are compared by estimate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.limits import lane_registers, shared_bytes
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.stack import Form, Phase, Stack, Strip, weight_reads, weight_words
from tilewright.fuse.cuda.sums import WEIGHTS, into, planes, share, source_picture
from tilewright.runtime.dialect import DoesNotFit

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
    for operation, strip in _divisions(operations):
        parts = operations if strip is None else [operation]
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
    heights = {-(-rows // unit // round(1.25**power)) * unit for power in range(3, 60)}
    for each in sorted(heights - {0}, reverse=True):
        starts = tuple(min(start, rows - each) for start in range(0, rows, each))
        if len(starts) == 1:
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
