"""Kernels for batches of few images: layers with much to do are spread over all multiprocessors.

Between these are kernels as for many images, for what little is left: the last layers, mostly. All
of it is worth it only where images alone do not keep the multiprocessors busy; which is estimated.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import SHAPES, Arrangement, all_stacks, divisions, stack_as
from tilewright.fuse.cuda.choice import Few, Passed, Patched, Spread, Stacked
from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.panels import Panels
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.passing_choice import only_passes, passing
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.patches_choice import best_patches
from tilewright.fuse.cuda.patches_choice import cycles as patches_cycles
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.sums import WEIGHTS
from tilewright.fuse.cuda.tiles import Tiles, can_spread, fits
from tilewright.fuse.cuda.tiles_choice import best_tiles, tiles_cycles

# A kernel that is chosen for its own operations, whatever comes before and after.
Alone = Stacked | Patched | Spread | Passed
# Images of a batch that kernels are made for, at most.
TIERS = (1, 4, 16, 64, 128)
# Multiply-adds of an image's layer that are not worth a launch of their own.
LITTLE = 500
# Cycles until a thread has read a word of a picture. Chosen: a read takes some 600, four at once.
READING = 150
# The same until a kernel of one operation without sums is under way. Chosen: so nine kernels, four
# of them such, take the 24 µs that they took (`by-depth`, an image in TF32; H200, 2026-11-18).
SIMPLE_WAIT = 1000
# Strips for each multiprocessor: smaller ones overlap more; sums in fewer blocks are for tiles.
LEAST_BLOCKS, MOST_BLOCKS = 0.5, 2


def spread(plan: Tiles) -> Spread:
    """A plan as it is chosen."""
    return Spread(len(plan.operations), plan.tiles, plan.columns, plan.down, plan.across,
                  plan.deep, plan.chunk, plan.stages, plan.most_parts)  # fmt: skip


def tiles_as(
    chosen: Spread, arithmetic: Arithmetic, part: Sequence[Operation], gpu: Generation
) -> Tiles | None:
    """The plan that was chosen, if there is such a one."""
    if not can_spread(part) or part[-1].in_rows or part[-1].gives == "panels":
        return None
    softmax = part[1] if len(part) > 1 else None
    plan = Tiles(arithmetic, part[0], softmax, chosen.tiles, chosen.columns, chosen.down,
                 chosen.across, chosen.deep, chosen.chunk, chosen.stages, chosen.parts)  # fmt: skip
    return plan if fits(plan, gpu) else None


def stack_cycles(plan: Stack, images: int, gpu: Generation) -> float:
    """The same of a kernel that takes an image, or a strip of one, to a block's group."""
    items = images * (len(plan.strip.starts) if plan.strip else 1)
    load = -(-items // gpu.few.processors)
    whole = plan.strip is None and (plan.given, plan.gives) == ("pixels", "output")
    if whole and load == 1 and plan.arithmetic.products == 1:  # nothing is fitted to others yet
        return _whole_cycles(plan, gpu)
    together = min(load, plan.groups)
    work = gpu.image_work + sum(phase.work(plan.arithmetic, gpu) for phase in plan.phases)
    alone = len(plan.phases) == 1 and not plan.sums
    begin = SIMPLE_WAIT if alone else gpu.image_wait
    wait = begin + sum(phase.wait(plan.arithmetic, plan.warps, gpu) for phase in plan.phases)
    weights = plan.shared_words / gpu.few.weights_a_cycle
    waves = -(-load // plan.groups)
    return gpu.few.launch + weights + waves * math.hypot(together * work, wait)


def _whole_cycles(plan: Stack, gpu: Generation) -> float:
    """The same of a network's only kernel that has one image of each block."""
    whole, rates, arithmetic = gpu.few.whole, _for_whole(gpu), plan.arithmetic
    work = sum(phase.work(arithmetic, rates, plan.warps, 1) for phase in plan.phases)
    wait = sum(phase.wait(arithmetic, plan.warps, rates) for phase in plan.phases)
    begin = whole.start + whole.warp * plan.warps * plan.groups
    return begin + whole.word * (plan.shared_words - plan.late_words) + math.hypot(work, wait)


@cache
def _for_whole(gpu: Generation) -> Generation:
    return replace(gpu, tensor=gpu.few.whole.tensor, plain=gpu.few.whole.plain)


def dense_cycles(plan: Dense, images: int, gpu: Generation) -> float:
    """The same of large fully connected layers over the batch."""
    blocks, parts = plan.parts(images, gpu.few.processors)
    words = plan.chunk_weights + plan.images * plan.chunk
    rounds = -(-plan.chunks // parts) * -(-blocks // gpu.few.processors)
    each = max(words / gpu.few.weights_a_cycle, 200)
    return gpu.few.launch + gpu.few.block + 2 * gpu.few.gather + rounds * each


def cycles(
    plan: Stack | Dense | Panels | Tiles | Patches | Passing, images: int, gpu: Generation
) -> float:
    if isinstance(plan, Tiles):
        return tiles_cycles(plan, images, gpu)
    if isinstance(plan, Patches):
        return patches_cycles(plan, images, gpu.few.processors)
    if isinstance(plan, Passing):
        return plan.cycles(images, gpu)
    if isinstance(plan, Panels):
        processors = gpu.few.processors
        return plan.cycles(plan.how(images, processors, True), images, processors)
    if isinstance(plan, Dense):
        return dense_cycles(plan, images, gpu)
    return stack_cycles(plan, images, gpu)


def choose_few(
    todo: Sequence[Operation],
    arithmetic: Arithmetic,
    gpu: Generation,
    images: int,
    stacked: Callable[[Sequence[Operation]], list[Alone]],
) -> Few | None:
    """The kernels for up to so many images; `stacked` are those of operations with little to do.

    None if there is nothing to spread.
    """
    kernels: list[Alone] = []
    little: list[Operation] = []
    in_strips = _Strips(arithmetic, gpu, images)
    at, any_spread = 0, False
    while at < len(todo):
        found = _of_much(todo[at : at + 2], in_strips)
        if found is None:
            little.append(todo[at])
            at += 1
            continue
        any_spread = True
        if little:
            kernels += _of_little(little, in_strips, stacked)
            little = []
        kernels.append(found)
        at += found.operations
    if little:
        kernels += _of_little(little, in_strips, stacked)
    return Few(images, tuple(kernels)) if any_spread else None


class _Strips:
    """Kernels of one operation on pictures, for so many images; of those alike found once."""

    def __init__(self, arithmetic: Arithmetic, gpu: Generation, images: int) -> None:
        self.arithmetic, self.gpu, self.images = arithmetic, gpu, images
        self.known: dict[Hashable, tuple[float, Stacked | Passed] | None] = {}

    def best(self, operation: Operation) -> tuple[float, Stacked | Passed] | None:
        """The best of them, and its cycles; None: there is none."""
        if operation.connected or operation.kind == "softmax":
            return None
        alike = operation.alike, operation.forms, operation.gives, operation.only_sums
        if alike not in self.known:
            self.known[alike] = min(self._all(operation), key=lambda each: each[0], default=None)
        return self.known[alike]

    def _all(self, operation: Operation) -> Iterator[tuple[float, Stacked | Passed]]:
        own = passing(self.arithmetic, operation)
        if own is not None:
            yield own.cycles(self.images, self.gpu), Passed()
        if own is not None and only_passes([operation]):
            return
        for division in enumerate(divisions([operation])):
            _, (_, strip) = division
            load = self.images * (len(strip.starts) if strip else 1) / self.gpu.few.processors
            if load > MOST_BLOCKS:
                break
            if operation.kind == "sum" and load < LEAST_BLOCKS:
                continue  # tiles are better
            for plan, chosen in all_stacks(self.arithmetic, division, self.gpu):
                yield _alone_cycles(plan, self.images, self.gpu), Stacked(1, *chosen)


def _of_much(todo: Sequence[Operation], in_strips: _Strips) -> Alone | None:
    """The first of some operations, or two, over all multiprocessors: in tiles, strips or
    patches."""
    arithmetic, gpu, images = in_strips.arithmetic, in_strips.gpu, in_strips.images
    for part in (tuple(todo), tuple(todo[:1])):
        plan = None
        if can_spread(part) and _much(part[0]):
            plan = best_tiles(arithmetic, part, gpu, images)
        if plan is None:
            continue
        ways: list[tuple[float, Alone]] = [(tiles_cycles(plan, images, gpu), spread(plan))]
        if len(part) == 1:
            strips = in_strips.best(part[0])
            ways += [strips] if strips else []
            wide = best_patches(arithmetic, part[0], gpu, images)
            if wide is not None:
                ways.append((patches_cycles(wide, images, gpu.few.processors), wide.chosen))
        return min(ways, key=lambda each: each[0])[1]
    return None


def arrangement_of(chosen: Stacked) -> Arrangement:
    return Arrangement(chosen.division, chosen.warps, chosen.groups, chosen.weight, chosen.wide)


def _of_little(
    todo: Sequence[Operation],
    in_strips: _Strips,
    stacked: Callable[[Sequence[Operation]], list[Alone]],
) -> Iterator[Alone]:
    """Operations between those that are spread: as for many images, or each in strips of its own.

    A convolution of each channel by itself has little to compute, but a picture to read.
    """
    at = 0
    for usual in stacked(todo):
        part = todo[at : at + usual.operations]
        at += usual.operations
        apart = [each for each in map(in_strips.best, part) if each is not None]
        if not isinstance(usual, Stacked) or len(apart) < len(part):
            yield usual
            continue
        plan = stack_as(arrangement_of(usual), in_strips.arithmetic, part, in_strips.gpu)
        assert plan
        together = _alone_cycles(plan, in_strips.images, in_strips.gpu)
        if sum(cost for cost, _ in apart) < together:
            yield from (kernel for _, kernel in apart)
        else:
            yield usual


def _alone_cycles(plan: Stack, images: int, gpu: Generation) -> float:
    """About how long a launch takes, with what one operation reads from device memory."""
    return stack_cycles(plan, images, gpu) + READING * plan.unstaged / (32 * plan.warps)


def one_kernel(
    todo: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation, images: int
) -> tuple[Stack, Stacked] | None:
    """All operations in one kernel that is arranged for so many images, a group to a block; None:
    there is none."""
    found = _in_one(tuple(todo), arithmetic, gpu)
    return min(found, key=lambda each: stack_cycles(each[0], images, gpu), default=None)


# The same for all numbers of images.
@lru_cache(maxsize=10)
def _in_one(
    todo: tuple[Operation, ...], arithmetic: Arithmetic, gpu: Generation
) -> list[tuple[Stack, Stacked]]:
    found = []
    alone = [warps for warps, groups in SHAPES if groups == 1]
    for warps, weight in itertools.product(alone, WEIGHTS):
        plan = stack_as(Arrangement(0, warps, 1, weight), arithmetic, todo, gpu)
        if plan is not None:
            found.append((plan, Stacked(len(todo), 0, warps, 1, weight)))
    return found


def _much(operation: Operation) -> bool:
    return math.prod(operation.summed[1:]) * operation.weights > LITTLE
