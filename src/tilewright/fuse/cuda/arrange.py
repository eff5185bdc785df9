"""Which plan a stack of operations gets: all that fit are compared by estimate."""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.branches import inputs_of, is_chain, phases_of
from tilewright.fuse.cuda.fold import folded
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.held import COUNTS, LITTLE, holding, setting_aside
from tilewright.fuse.cuda.limits import lane_registers
from tilewright.fuse.cuda.operations import Form, Operation, Window
from tilewright.fuse.cuda.pictures import Picture, plain
from tilewright.fuse.cuda.stack import Phase, Rows, Stack, Strip, Taken
from tilewright.fuse.cuda.sums import WEIGHTS, Shares, into, planes, share, source_picture
from tilewright.fuse.cuda.warpgroups import can_be_wide, wide_share, with_warpgroups
from tilewright.model.layers import Shape
from tilewright.runtime.dialect import DoesNotFit

# Operations that strips of an image may go through together: each makes them overlap more.
MOST_IN_STRIPS = 3
# Neighbouring strips compute some rows both: this much more work than whole images at most.
MOST_TWICE = 1.25
# Warps of a group, and groups of a block, that are tried.
SHAPES = (
    *((1, 8), (1, 12), (1, 16), (2, 4), (2, 5), (2, 6), (2, 8), (4, 2), (4, 3), (4, 4)),
    *((8, 1), (8, 2), (16, 1)),
)


class Arrangement(NamedTuple):
    """What was chosen: which of the ways to divide an image, warps, groups, and units' weight."""

    division: int
    warps: int
    groups: int
    weight: float
    wide: bool = False  # units for warpgroups, where they can be


def searched() -> tuple[object, ...]:
    """What a search looks at: who changes it gets other plans."""
    return SHAPES, WEIGHTS, MOST_IN_STRIPS, MOST_TWICE, COUNTS, LITTLE


# By operations that are alike, and the forms in which images come and results go; None: none fits.
Known = dict[Hashable, Arrangement | None]


def arranged(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    generation: Generation,
    known: Known | None = None,
) -> tuple[Stack, Arrangement]:
    """The best plan for these operations in one kernel, and what was chosen; else DoesNotFit.

    `known` has what was found before with the same arithmetic and generation, and gets what is
    found.
    """
    alike = (
        tuple(each.alike for each in operations), operations[0].forms[0], operations[-1].gives,
        generation,
    )  # fmt: skip
    if known is None or alike not in known:
        found = _best(arithmetic, operations, generation)
        if known is not None:
            known[alike] = found[1] if found else None
        if found:
            return found
    elif chosen := known[alike]:
        plan = stack_as(chosen, arithmetic, operations, generation)
        assert plan
        return plan, chosen
    names = ", ".join(name for operation in operations for name in operation.names)
    raise DoesNotFit(
        f"{names}: does not fit into {generation.shared_bytes:,} bytes of shared memory"
    )


def stack_as(
    chosen: Arrangement,
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    generation: Generation,
) -> Stack | None:
    """The plan with all that is chosen; None if there is no such one, or it does not fit."""
    number, warps, groups, weight, wide = chosen
    if number < 0 or (warps, groups) not in SHAPES or weight not in WEIGHTS:
        return None
    for parts, strip in itertools.islice(divisions(operations), number, number + 1):
        if 4 * _least_words(arithmetic, parts) <= generation.shared_bytes:
            return _plan(arithmetic, parts, generation, warps, groups, weight, strip, wide)
    return None


def _best(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    generation: Generation,
) -> tuple[Stack, Arrangement] | None:
    for division in enumerate(divisions(operations)):
        plans = all_stacks(arithmetic, division, generation)
        best = min(plans, key=lambda each: (each[0].cycles(generation), -each[0].groups),
                   default=None)  # fmt: skip
        if best:
            return best
    return None


def all_stacks(
    arithmetic: Arithmetic,
    division: tuple[int, tuple[Sequence[Operation], Strip | None]],
    generation: Generation,
) -> Iterator[tuple[Stack, Arrangement]]:
    """Every plan that divides an image in one way, the number of which is given with it."""
    number, (parts, strip) = division
    least = 4 * _least_words(arithmetic, parts)
    for warps, groups in SHAPES:
        if groups * least > generation.shared_bytes:
            continue
        for weight, wide in _different(arithmetic, parts, generation, warps, groups, strip):
            plan = _plan(arithmetic, parts, generation, warps, groups, weight, strip, wide)
            if plan is not None:
                yield plan, Arrangement(number, warps, groups, weight, wide)


def _different(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    generation: Generation,
    warps: int,
    groups: int,
    strip: Strip | None,
) -> Iterable[tuple[float, bool]]:
    """Weights, each without and with units for warpgroups, that share out work as none before."""
    registers = lane_registers(warps * groups)
    every = _as_phases(operations, arithmetic, strip)
    sums = list({each.geometry: each for each in every if each.kind == "sum"}.values())
    met = []
    for weight, wide in itertools.product(WEIGHTS, (False, True)):
        if wide and not can_be_wide(arithmetic, generation, warps, groups):
            continue
        setting = _Setting(arithmetic, generation, warps, registers, weight, wide)
        shares = [_share(setting, each) for each in sums]
        if wide and not any(each.wide for each in shares):
            continue
        if shares not in met:
            met.append(shares)
            yield weight, wide


def divisions(
    operations: Sequence[Operation],
) -> Iterable[tuple[Sequence[Operation], Strip | None]]:
    """Whole images; then, of a few operations, strips of fewer and fewer rows; then pooling alone
    where its input lies."""
    yield operations, None
    if len(operations) <= MOST_IN_STRIPS and is_chain(operations):
        yield from _strips(operations)
    (first, *more) = operations
    if not more and first.kind == "each" and first.forms[0] == "words":
        yield [replace(first, direct=True)], None


def _strips(operations: Sequence[Operation]) -> Iterable[tuple[Sequence[Operation], Strip | None]]:
    if any(each.kind == "softmax" or each.connected for each in operations):
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
                window=_without_rows(window),
            )
        )
        stride, padding = stride * window.stride[0], padding * window.stride[0] + window.padding[0]
        pictures.append(Rows(stride, padding, height))
        if len(parts) < len(operations):
            before = _unit(operations[-1 - len(parts)])
            rows, stride, padding = tall * before, stride * before, padding * before
    return parts[::-1], tuple(pictures[::-1])


def _without_rows(window: Window) -> Window:
    """The same on a strip, which comes with the rows above and below it."""
    after = None if window.after is None else (0, window.after[1])
    return replace(window, padding=(0, window.padding[1]), after=after)


def _work(operations: Sequence[Operation]) -> int:
    """Values that all sums, or windows, of a whole image or of a strip take in."""
    return sum(
        math.prod(each.summed) * math.prod(each.window.taps)
        * (each.source[0] if each.kind == "sum" else 1)
        for each in operations
    )  # fmt: skip


def _least_words(arithmetic: Arithmetic, operations: Sequence[Operation]) -> int:
    """That the pictures take at least; a quick way to say no."""

    def words(shape: Shape) -> int:
        return arithmetic.words(shape[0]) * shape[1] * shape[2]

    if is_chain(operations):  # by turns in two places
        sizes = [words(each.source) for each in operations]
        return max(sizes[::2]) + max(sizes[1::2], default=0)
    # What an operation reads through windows and what it writes are never in the same place.
    return max(
        (words(each.source) if each.kind != "join" and not each.direct else 0)
        + (0 if each is operations[-1] else words(each.result))
        for each in operations
    )


def _unit(operation: Operation) -> int:
    """Rows of sums for a row of the result."""
    return 2 if operation.kind == "sum" and operation.pool else 1


def _plan(
    arithmetic: Arithmetic,
    operations: Sequence[Operation],
    generation: Generation,
    warps: int,
    groups: int,
    weight: float,
    strip: Strip | None,
    wide: bool,
) -> Stack | None:
    """The plan for groups of so many warps, if it fits; weights stay out if they must."""
    if wide and not can_be_wide(arithmetic, generation, warps, groups):
        return None
    registers = lane_registers(warps * groups)
    setting = _Setting(arithmetic, generation, warps, registers, weight, wide)
    inputs, layout = inputs_of(operations), None
    given, gives = _given(operations, inputs), operations[-1].gives
    shapes = _shapes(operations, inputs)
    if is_chain(operations):
        taken = _as_phases(operations, arithmetic, strip)
        phases = _phases(setting, taken, given[0], gives, strip)
    else:
        branching = phases_of(operations, arithmetic, generation, groups, partial(_share, setting))
        if branching is None:
            return None
        phases, layout = branching
    last = strip.result if strip else operations[-1].result
    words = plain(arithmetic, last, floats=gives == "output")
    result = words.height * words.row
    staged = 0
    if given[0] == "pixels" and strip is None and (layout is None or 0 in layout.filled):
        pixels = math.prod(shapes[0])
        staged = pixels if pixels % 4 == 0 else 0
    if strip:
        shapes = (strip.source, *shapes[1:])
    whole = Stack(
        arithmetic, phases, warps, groups, given[0], gives, result, staged, strip, inputs,
        given[1:], shapes, layout,
    )  # fmt: skip
    whole = setting_aside(whole)
    # Weights stay out of shared memory, one layer's after another's, those first that are read
    # least often; before that, nothing is fetched ahead.
    order = sorted(
        (phase for phase in phases if phase.weighted), key=lambda phase: phase.weight_reads
    )
    excess = whole.shared_bytes - generation.shared_bytes
    without = 4 * whole.groups * whole.staged_words
    outside = 0
    while excess > without and outside < len(order):
        excess -= 4 * order[outside].weight_words
        outside += 1
    if excess > without:
        return None
    left = order[:outside]
    room = (0 if excess <= 0 else without) - excess
    for phase in reversed(left[:]):  # those that still fit go back
        if 4 * phase.weight_words <= room:
            left.remove(phase)
            room -= 4 * phase.weight_words
    if excess > 0 or left:
        kept = tuple(each.distant if each in left else each for each in phases)
        whole = replace(whole, phases=kept, staged_bytes=staged if excess <= 0 else 0)
    if wide and not (_wide(whole) and all(each.shared for each in _wide(whole))):
        return None  # it is the same as without, or tensor cores cannot read the weights
    return with_warpgroups(holding(whole, generation.shared_bytes), generation)


def _as_phases(
    operations: Sequence[Operation], arithmetic: Arithmetic, strip: Strip | None
) -> Sequence[Operation]:
    """The operations as a kernel's phases have them."""
    if strip is not None or not is_chain(operations):
        return operations
    return [folded(operations[0], arithmetic), *operations[1:]]


def _wide(plan: Stack) -> list[Phase]:
    return [phase for phase in plan.phases if phase.shares and phase.shares.wide]


def _given(part: Sequence[Operation], inputs: tuple[int, ...]) -> tuple[Form, ...]:
    """The form in which each of a kernel's inputs comes."""
    forms = {taken: form for each in part
             for taken, form in zip(each.takes, each.forms, strict=True)}  # fmt: skip
    return tuple(forms[each] for each in inputs)


def _shapes(part: Sequence[Operation], inputs: tuple[int, ...]) -> tuple[Shape, ...]:
    """The picture that each of a kernel's inputs is."""
    shapes = {taken: shape for each in part
              for taken, shape in zip(each.takes, each.shapes, strict=True)}  # fmt: skip
    return tuple(shapes[each] for each in inputs)


class _Setting(NamedTuple):
    """What the phases of a plan depend on besides their operations."""

    arithmetic: Arithmetic
    generation: Generation
    warps: int
    registers: int
    weight: float
    wide: bool


def _phases(
    setting: _Setting,
    operations: Sequence[Operation],
    given: Form,
    gives: Form,
    strip: Strip | None,
) -> tuple[Phase, ...]:
    phases: list[Phase] = []
    before: Operation | None = None
    for operation, following in itertools.pairwise(operations):
        phases.append(_inner(setting, operation, _is_softmax(before), following, given, not phases))
        before = operation
    last = operations[-1]
    shares, source = _source(setting, last, _is_softmax(before), not phases and given == "pixels")
    if gives == "output":
        sink = planes(strip.result if strip else last.result)
    else:
        sink = into(plain(setting.arithmetic, last.result), setting.arithmetic, last.only_sums)
    if not last.added:
        return (*phases, Phase(last, source, None, sink, shares))
    added = into(plain(setting.arithmetic, last.result), setting.arithmetic, rounded=False)
    inputs = inputs_of(operations)
    reads = Taken(True, len(phases)), Taken(False, inputs.index(last.takes[1]))
    return (*phases, Phase(last, source, None, sink, shares, reads=reads, added=added))


def _is_softmax(operation: Operation | None) -> bool:
    return operation is not None and operation.kind == "softmax"


# The same operations are tried together with more and more of those that follow.
@lru_cache(maxsize=50_000)
def _inner(
    setting: _Setting,
    operation: Operation,
    after_softmax: bool,
    following: Operation,
    given: Form,
    first: bool,
) -> Phase:
    """A phase whose results the next one reads."""
    shares, source = _source(setting, operation, after_softmax, first and given == "pixels")
    _, target = _source(setting, following, operation.kind == "softmax", False)
    if following.kind == "softmax":
        sink = planes(operation.result)
    else:
        sink = into(target, setting.arithmetic, operation.only_sums)
    return Phase(operation, source, target, sink, shares)


@lru_cache(maxsize=50_000)
def _source(
    setting: _Setting, operation: Operation, after_softmax: bool, loaded: bool
) -> tuple[Shares | None, Picture]:
    """How an operation's work is shared out, and the picture that it reads."""
    arithmetic, generation = setting[:2]
    if operation.kind != "sum":
        # Scores of a softmax stay as exact as they were summed, and so do probabilities.
        floats = operation.kind == "softmax" or after_softmax
        around = operation.window.around if operation.kind == "channels" else (0, 0)
        return None, plain(arithmetic, operation.source, floats, around)
    shares = _share(setting, operation)
    return shares, source_picture(shares, loaded, generation.unaligned)


def _share(setting: _Setting, operation: Operation) -> Shares:
    arithmetic, generation, warps, registers, weight, wide = setting
    if wide:
        found = wide_share(operation.geometry, arithmetic, generation, warps, registers)
        if found:
            return found
    return share(operation.geometry, arithmetic, generation, warps, registers, weight)
