"""Pooling as an operation of its own, where that is faster than behind the sums; and making words
of pixels, before them (`arriving`).

Small pictures fill patches only with eight images beside each other, and then no lane has all sums
of a window (`patches`). So the sums are written as they are, and another kernel pools them: 512
channels of 4 x 4 took 695 us in TF32, and without the pooling 197 (`vgg16`, 1,000 images, H200,
2026-11-19).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.arriving import can_arrive, with_arriving
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Operation, with_pooling
from tilewright.fuse.cuda.passing_choice import passing
from tilewright.fuse.cuda.patches import worth_eights
from tilewright.fuse.cuda.patches_choice import best_for_many
from tilewright.fuse.cuda.to_do import handed_on
from tilewright.runtime.dialect import DoesNotFit

PIXELS = -1  # as operations take them
# Where it is no kernel of its own (`pools`), a pooling moves its words at half of the speed that
# device memory has (2 to 2.5 TB/s of 64 images of 55 x 55 and 1,000 of 16 x 16; H200, 2026-11-19).
PASSES = 2


def taken_apart(
    todo: Sequence[Operation], apart: Sequence[int], gpu: Generation
) -> list[Operation]:
    """The same operations, of which those at some places are two: sums, and their pooling; and
    what makes words of pixels, if these are named."""
    found = list(todo)
    for at in sorted({each for each in apart if each != PIXELS}, reverse=True):
        if not (0 <= at < len(todo) and todo[at].kind == "sum" and todo[at].pool):
            raise TilewrightError(f"options.apart: operation {at} is no sum that is pooled")
        found = with_pooling(found, at)
    found = handed_on(found, gpu) if apart else found
    return with_arriving(found, gpu) if PIXELS in apart else found


def better_apart(
    todo: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation
) -> tuple[int, ...]:
    """Where that is estimated to be faster."""
    poolings = tuple(at for at in range(len(todo)) if _gains(todo, at, arithmetic, gpu))
    return (PIXELS, *poolings) if _pixels_gain(todo, arithmetic, gpu) else poolings


def _pixels_gain(todo: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation) -> bool:
    if not can_arrive(todo, gpu):
        return False
    pixels, first, *_ = with_arriving(todo, gpu)
    apart, arriving = best_for_many(arithmetic, first, gpu), passing(arithmetic, pixels)
    if apart is None or arriving is None:
        return False
    both = apart[0] + arriving.image_cycles(gpu)
    return gpu.worth_it * both < _cycles(todo[0], arithmetic, gpu)


def _gains(todo: Sequence[Operation], at: int, arithmetic: Arithmetic, gpu: Generation) -> bool:
    both = todo[at]
    if not (gpu.panels and both.kind == "sum" and both.pool and worth_eights(both)):
        return False
    summed = replace(with_pooling(todo, at)[at], gives="words")
    apart = best_for_many(arithmetic, summed, gpu)
    if apart is None:
        return False
    own = passing(arithmetic, _handed(with_pooling(todo, at)[at + 1], both))
    pooling = own.image_cycles(gpu) if own else _in_a_stack(both, arithmetic, gpu)
    return gpu.worth_it * (apart[0] + pooling) < _cycles(both, arithmetic, gpu)


def _handed(pooling: Operation, both: Operation) -> Operation:
    """With how its words come and go."""
    return replace(pooling, forms=("words",), gives=both.gives, only_sums=both.only_sums,
                   in_rows=both.in_rows)  # fmt: skip


def _in_a_stack(both: Operation, arithmetic: Arithmetic, gpu: Generation) -> float:
    words = sum(
        arithmetic.words(channels) * height * width
        for channels, height, width in (both.summed, both.result)
    )
    return PASSES * words / gpu.words_a_cycle + gpu.launch_cycles


def _cycles(operation: Operation, arithmetic: Arithmetic, gpu: Generation) -> float:
    """An image's, in one kernel."""
    patches = best_for_many(arithmetic, operation, gpu)
    try:
        plan, _ = arranged(arithmetic, [operation], gpu)
        stack = plan.cycles(gpu)
    except DoesNotFit:
        stack = math.inf
    return min(stack, patches[0] if patches else math.inf)
