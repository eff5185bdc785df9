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


def all_patches(arithmetic: Arithmetic, operation: Operation, gpu: Generation) -> Iterator[Patches]:
    """The plans that are compared."""
    yield from patches_tensor.all_patches(arithmetic, operation, gpu)
    yield from patches_plain.all_patches(arithmetic, operation, gpu)


def patches_as(
    chosen: Patched, arithmetic: Arithmetic, operation: Operation, gpu: Generation
) -> Patches | None:
    """The plan that was chosen, if there is such a one."""
    given = (arithmetic, operation, chosen.images, chosen.down, chosen.across, chosen.groups,
             chosen.wide, chosen.stages, chosen.pictures)  # fmt: skip
    plan: Patches
    if patches_plain.can_be_patches(arithmetic, operation, gpu):
        plan = PlainPatches(*given, chosen.own, chosen.depth, chosen.high, chosen.twice)
    elif patches_tensor.can_be_patches(arithmetic, operation, gpu):
        plan = TensorPatches(*given, chosen.turned)
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
    return works * plan.work_cycles(plan.rates)


def cycles(plan: Patches, images: int, processors: int, rates: PatchRates | None = None) -> float:
    """About how long a launch takes."""
    rates = rates or plan.rates
    waves = -(-plan.works(images) // processors)
    return rates.launch + waves * plan.work_cycles(rates)


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
