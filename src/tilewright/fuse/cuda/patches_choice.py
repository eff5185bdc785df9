"""Which kernel of patches a wide convolution gets, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tilewright.fuse.cuda import patches_plain, patches_tensor
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.choice import Patched
from tilewright.fuse.cuda.generations import Generation, PatchRates
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.patches_plain import PlainPatches
from tilewright.fuse.cuda.patches_tensor import TensorPatches

# Of kernels for many images the one is taken that loses least against the best for any number of
# them, times what it loses against the best for so many, where it counts whether blocks come out
# even: of layers with little to do one that is best for any number is estimated at 1.4 times as
# long there.
MANY = 1000


def all_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> Iterator[Patches]:
    """The plans that are compared."""
    yield from patches_tensor.all_patches(arithmetic, operation, gpu)
    yield from patches_plain.all_patches(arithmetic.whole, operation, gpu)


def patches_as(
    chosen: Patched, arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> Patches | None:
    """The plan that was chosen, if there is such a one."""
    given = (operation, chosen.images, chosen.down, chosen.across, chosen.groups, chosen.wide,
             chosen.stages, chosen.pictures, chosen.eights, chosen.sections,
             chosen.sharing, chosen.line)  # fmt: skip
    plan: Patches
    if chosen.own and patches_plain.can_be_patches(arithmetic.whole, operation, gpu):
        own = chosen.own, chosen.depth, chosen.high, chosen.twice
        plan = PlainPatches(arithmetic.whole, *given, *own)
    elif patches_tensor.can_be_patches(arithmetic, operation, gpu):
        plan = TensorPatches(arithmetic, *given, chosen.turned)
    else:
        return None
    return plan if plan.chosen == chosen and plan.fits(gpu) else None


def image_cycles(plan: Patches, gpu: Generation) -> float:
    """Of a multiprocessor, of one image of many, with what its launch costs."""
    moved = plan.result_words + sum(
        plan.arithmetic.words(channels) * height * width
        for channels, height, width in plan.input_shapes
    )
    return max(_own_cycles(plan), moved / gpu.words_a_cycle) + gpu.launch_cycles


def _own_cycles(plan: Patches) -> float:
    """Of a multiprocessor, of an image: without what device memory moves."""
    works = math.prod(plan.blocks) * plan.column_blocks / plan.images
    return works * plan.work_cycles(plan.rates) / plan.sharing


def cycles(plan: Patches, images: int, processors: int, rates: PatchRates | None = None) -> float:
    """About how long a launch takes."""
    rates = rates or plan.rates
    waves = -(-plan.works(images) // (plan.sharing * processors))
    return rates.launch + waves * plan.work_cycles(rates)


def best_patches(
    arithmetic: Arithmetic, operation: Operation, gpu: Generation, images: int
) -> Patches | None:
    """The best for so many images; None: there is none."""
    found = _best(arithmetic, _alike(operation), gpu, images)
    return replace(found, operation=operation) if found else None


def best_for_many(
    arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> tuple[float, Patches] | None:
    """What an image of many costs of the best of all, and one that is nearly as good and good for
    `MANY`, too, of which every multiprocessor then has some; None: there is none."""
    found = _best_for_many(arithmetic, _alike(operation), gpu)
    return (found[0], replace(found[1], operation=operation)) if found else None


@lru_cache(maxsize=1000)
def _best(arithmetic: Arithmetic, alike: _Alike, gpu: Generation, images: int) -> Patches | None:
    plans, processors = _tried(arithmetic, alike, gpu), gpu.few.processors
    return min(plans, key=lambda plan: cycles(plan, images, processors), default=None)


@lru_cache(maxsize=1000)
def _best_for_many(
    arithmetic: Arithmetic, alike: _Alike, gpu: Generation
) -> tuple[float, Patches] | None:
    processors = gpu.few.processors
    plans = [
        (image_cycles(plan, gpu), cycles(plan, MANY, processors), plan)
        for plan in _tried(arithmetic, alike, gpu)
        if plan.works(MANY) >= processors
    ]
    if not plans:
        return None
    # Of those that wait for device memory, the one that has least to do besides.
    *_, best = min(plans, key=lambda each: (each[0] * each[1], _own_cycles(each[2])))
    return min(cost for cost, *_ in plans), best


@dataclass(frozen=True)
class _Alike:
    """An operation that stands for all that are planned the same."""

    given: tuple[object, ...]
    operation: Operation = field(compare=False)


def _alike(operation: Operation) -> _Alike:
    return _Alike((operation.alike, operation.forms, operation.gives), operation)


@lru_cache(maxsize=100)
def _tried(arithmetic: Arithmetic, alike: _Alike, gpu: Generation) -> tuple[Patches, ...]:
    return tuple(all_patches(arithmetic, alike.operation, gpu))
