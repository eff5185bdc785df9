"""How a network is cut into kernels: as few as fit, where the estimated time is least."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import NamedTuple

from msgspec import structs

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda import planned
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import Known, arranged, searched, stack_as
from tilewright.fuse.cuda.arriving import can_arrive
from tilewright.fuse.cuda.choice import (
    Choice,
    Connected,
    Few,
    Multiplied,
    Passed,
    Patched,
    Spread,
    Stacked,
)
from tilewright.fuse.cuda.dense import Dense, dense, denses
from tilewright.fuse.cuda.few import (
    TIERS,
    Alone,
    arrangement_of,
    choose_few,
    cycles,
    one_kernel,
    spread,
    tiles_as,
)
from tilewright.fuse.cuda.generations import Generation, generation
from tilewright.fuse.cuda.operations import (
    Operation,
)
from tilewright.fuse.cuda.panels import Panels, connected
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.passing_choice import only_passes, passing
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.patches_choice import best_for_many, patches_as
from tilewright.fuse.cuda.pooled_apart import PIXELS, better_apart, taken_apart
from tilewright.fuse.cuda.stack import Source, Stack
from tilewright.fuse.cuda.tiles import Tiles, can_spread
from tilewright.fuse.cuda.tiles_choice import best_tiles, tiles_cycles
from tilewright.fuse.cuda.to_do import is_large, over_the_batch, to_do
from tilewright.model.network import Stage
from tilewright.runtime.dialect import DoesNotFit

Chosen = Alone | Multiplied | Connected
Kernel = Stack | Dense | Panels | Tiles | Patches | Passing
# Operations that a kernel takes at most, so that time to plan grows as the layers' number does.
MOST_TOGETHER = 32
MANY = 1000  # images
# What kernels for few images must promise to save: estimates of them are 13 % off on average.
FEW_WORTH = 1.1


def cut(stages: Sequence[Stage], arithmetic: Arithmetic, capability: int) -> list[Kernel]:
    """The kernels for all layers from the pixels to the output."""
    return build(stages, arithmetic, capability, choose(stages, arithmetic, capability))


def choose(stages: Sequence[Stage], arithmetic: Arithmetic, capability: int) -> Choice:
    """How these layers are best computed; a search, unless the same was asked for before."""
    gpu = generation(capability)
    todo = _to_do(tuple(stages), gpu)
    return _choose(todo, arithmetic, gpu, (*searched(), MOST_TOGETHER))


# How much faster a network must seem, with launches, that is cut where stretches of it promise to
# be, in fp16 and TF32. Of 27 cases that so, or by what strips and poolings are held to cost since,
# were cut elsewhere than before, 20 took 0.64 to 0.98 times as long, three 1.11 to 1.24, of which
# two are as they were again (1,000 images, H200,
# `benchmarks/results/2026-11-19-cuts-again-h200.json`); in fp32, which needs no such threshold, 21
# networks took 0.97 to 1.22 times as long before, 1.09 on average (`2026-11-19-cuts-h200.json`).
CLEARLY = 1.06


# A proof asks for the same network some ten times, and a build twice.
@lru_cache(maxsize=100)
def _choose(
    todo: tuple[Operation, ...],
    arithmetic: Arithmetic,
    gpu: Generation,
    search: tuple[object, ...],
) -> Choice:
    # Everything that the answer depends on, in words; the layers' names are not.
    question = repr(([each.alike for each in todo], arithmetic, gpu, search))
    choice = planned.read(question)
    if choice is None:
        choice = _search(todo, arithmetic, gpu)
        planned.keep(question, choice)
    return choice


def with_few(
    choice: Choice, stages: Sequence[Stage], arithmetic: Arithmetic, capability: int
) -> Choice:
    """The same with kernels for few images, where they promise to be faster."""
    many = tuple(build(stages, arithmetic, capability, choice))
    if arithmetic.whole.tensor and all(isinstance(each, Panels) for each in many):
        return choice  # which have a way of their own for few
    gpu = generation(capability)
    todo = _to_do(tuple(stages), for_few(gpu))
    search = (*searched(), MOST_TOGETHER, TIERS, FEW_WORTH)
    question = repr(([each.alike for each in todo], arithmetic, gpu, choice, search))
    kept = planned.read(question)
    if kept is None:
        kept = _with_few(choice, many, todo, arithmetic, for_few(gpu))
        planned.keep(question, kept)
    return kept


def _with_few(
    choice: Choice,
    many: Sequence[Kernel],
    todo: Sequence[Operation],
    arithmetic: Arithmetic,
    gpu: Generation,
) -> Choice:
    found, up_to = [], 0
    for images in TIERS:
        ways = [
            way
            for apart in (((), (PIXELS,)) if can_arrive(todo, gpu) else ((),))
            if (way := _few_kernels(todo, arithmetic, gpu, images, apart)) is not None
        ]
        if not ways:
            return choice
        least, few = min(ways, key=lambda way: way[0])
        one = one_kernel(todo, arithmetic, gpu, images) if len(todo) <= MOST_TOGETHER else None
        if one is not None and cycles(one[0], images, gpu) < least:
            few, least = Few(images, (one[1],)), cycles(one[0], images, gpu)
        if FEW_WORTH * least < sum(cycles(each, images, gpu) for each in many):
            up_to = images
        else:
            few = Few(images, ())
        found.append(few)
    return structs.replace(choice, few=tuple(found), few_up_to=up_to) if up_to else choice


def _few_kernels(
    todo: Sequence[Operation],
    arithmetic: Arithmetic,
    gpu: Generation,
    images: int,
    apart: tuple[int, ...],
) -> tuple[float, Few] | None:
    """The kernels for so many images, and their cycles; None if there are none of their own."""
    todo = taken_apart(todo, apart, gpu)
    try:
        few = choose_few(
            todo, arithmetic, gpu, images, lambda part: _stacks(part, arithmetic, gpu, 0)
        )
    except DoesNotFit:  # what lies between layers: all images go by the kernels for many
        return None
    if few is None:
        return None
    plans = _plans(todo, arithmetic, gpu, few.kernels)
    return sum(cycles(each, images, gpu) for each in plans), structs.replace(few, apart=apart)


@cache
def for_few(gpu: Generation) -> Generation:
    """No fully connected layer is done over the batch, and most of the time is waiting."""
    few = gpu.few
    return replace(
        gpu, most_connected=10**12, panels=False, tensor=few.tensor, plain=few.plain,
        image_work=few.image_work, image_wait=few.image_wait,
    )  # fmt: skip


def recut(
    stages: Sequence[Stage], arithmetic: Arithmetic, capability: int, extra: int
) -> Choice | None:
    """The best way with so many kernels more than are chosen; None if there is none."""
    gpu = generation(capability)
    try:
        return _search(_to_do(tuple(stages), gpu), arithmetic, gpu, extra)
    except DoesNotFit:
        return None


def _search(
    todo: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation, extra: int = 0
) -> Choice:
    apart = better_apart(todo, arithmetic, gpu)
    todo = taken_apart(todo, apart, gpu)
    kernels: list[Chosen] = []
    at = 0
    while at < len(todo):
        large = is_large(todo[at], gpu)
        end = over_the_batch(todo, at, gpu) if large else at
        while not large and end < len(todo) and not is_large(todo[end], gpu):
            end += 1
        if large and gpu.panels:
            layers = [each for each in todo[at:end] if each.connected]
            taken = [1] * (len(layers) - 1) + [end - at - len(layers) + 1]
            kernels += [Connected(count, gpu.most_few) for count in taken]
        elif large:
            kernels.append(_multiplied(dense(arithmetic, todo[at:end], gpu)))
        else:
            kernels += _stacks(todo[at:end], arithmetic, gpu, extra)
        at = end
    return Choice(gpu.name, tuple(kernels), apart=apart)


def build(
    stages: Sequence[Stage],
    arithmetic: Arithmetic,
    capability: int,
    choice: Choice,
    few: Few | None = None,
) -> list[Kernel]:
    """The kernels as they were chosen; refused if they are not for these layers or this GPU.

    Those for many images, or for few.
    """
    gpu = generation(capability)
    if choice.generation != gpu.name:
        raise TilewrightError(
            f"options.generation: kernels for {choice.generation:.40}, and the GPU is {gpu.name}"
        )
    if few is None or not few.kernels:
        return list(_build(tuple(stages), arithmetic, gpu, choice.kernels, choice.apart))
    return list(_build(tuple(stages), arithmetic, for_few(gpu), few.kernels, few.apart))


def few_of(choice: Choice, images: int) -> Few | None:
    """The kernels for so many images, if they are few."""
    if images > choice.few_up_to or not choice.few:
        return None
    few = next((each for each in choice.few if images <= each.images), choice.few[-1])
    return few if few.kernels else None


@lru_cache(maxsize=100)
def _build(
    stages: tuple[Stage, ...],
    arithmetic: Arithmetic,
    gpu: Generation,
    chosen_kernels: tuple[Chosen, ...],
    apart: tuple[int, ...],
) -> tuple[Kernel, ...]:
    todo = taken_apart(_to_do(stages, gpu), apart, gpu)
    return _plans(todo, arithmetic, gpu, chosen_kernels)


# A tuner builds the same layers thousands of times, one of their kernels in another way.
@lru_cache(maxsize=100)
def _to_do(stages: tuple[Stage, ...], gpu: Generation) -> tuple[Operation, ...]:
    return tuple(to_do(stages, gpu))


def _plans(
    todo: Sequence[Operation],
    arithmetic: Arithmetic,
    gpu: Generation,
    chosen_kernels: Sequence[Chosen],
) -> tuple[Kernel, ...]:
    kernels: list[Kernel] = []
    search = (*searched(), MOST_TOGETHER)
    at = 0
    for number, chosen in enumerate(chosen_kernels):
        end = at + chosen.operations
        plan = None
        if end <= len(todo):
            after = todo[end] if end < len(todo) else None
            plan = _kernel(chosen, tuple(todo[at:end]), arithmetic, gpu, after, search)
        if plan is None:
            raise TilewrightError(
                f"options.kernels[{number}]: {chosen!s:.120} is no kernel of these layers that "
                f"fits {gpu.name}"
            )
        if isinstance(plan, Dense | Panels) and plan.given != "pixels":
            # What it reads ends on whole chunks.
            for place, other in enumerate(kernels):
                if isinstance(other, Stack) and other.last == plan.inputs[0]:
                    kernels[place] = replace(other, result_words=plan.words)
        kernels.append(plan)
        at = end
    if at < len(todo):
        raise TilewrightError(f"options.kernels: they leave {_named(todo[at])} out")
    return tuple(kernels)


@lru_cache(maxsize=100)
def _kernel(
    chosen: Chosen,
    part: tuple[Operation, ...],
    arithmetic: Arithmetic,
    gpu: Generation,
    after: Operation | None,
    search: tuple[object, ...],
) -> Kernel | None:
    """A part of the operations in one kernel; `after` comes after it. With another `search` it
    could be another."""
    if isinstance(chosen, Spread):
        return tiles_as(chosen, arithmetic, part, gpu)
    if isinstance(chosen, Passed):
        return passing(arithmetic, part[0]) if len(part) == 1 else None
    if isinstance(chosen, Patched):
        return patches_as(chosen, arithmetic, part[0], gpu) if len(part) == 1 else None
    if isinstance(chosen, Connected):
        return _connected(chosen, part, arithmetic, gpu)
    if isinstance(chosen, Multiplied):
        # They do not read pixels; a softmax comes last of all.
        layers = part[:-1] if part[-1].kind == "softmax" and after is None else part
        if (
            gpu.panels
            or part[0].forms[0] != "words"
            or not is_large(part[0], gpu)
            or not all(x.connected for x in layers)
            or over_the_batch([*part, *([after] if after else [])], 0, gpu) < len(part)
        ):
            return None
        return next((x for x in denses(arithmetic, part, gpu) if _multiplied(x) == chosen), None)
    if (
        len(part) > MOST_TOGETHER
        or any(is_large(each, gpu) for each in part)
        or not _together(part, {each.index for each in part})
    ):
        return None
    return stack_as(arrangement_of(chosen), arithmetic, part, gpu)


def _connected(
    chosen: Connected, part: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation
) -> Panels | None:
    """A fully connected layer in panels, with a softmax that nobody reads but the caller."""
    layer, *more = part
    if (
        not gpu.panels
        or not (is_large(layer, gpu) or layer.forms[0] == "panels")
        or len(more) > 1
        or any(over_the_batch(part, 0, gpu) < 2 or each.connected for each in more)
    ):
        return None
    return connected(arithmetic.whole, tuple(part), chosen.few)


def _named(operation: Operation) -> str:
    """As messages call it; what makes words of pixels has no layers."""
    return operation.names[0] if operation.names else "the input"


def _multiplied(plan: Dense) -> Multiplied:
    return Multiplied(
        len(plan.operations), plan.warps, plan.columns, plan.more, plan.chunk, plan.stages
    )


def _together(part: Sequence[Operation], inside: set[int]) -> bool:
    """Whether the last of consecutive operations is the only one whose result others read."""
    return all(each.last_reader in inside for each in part[:-1])


def sources(kernels: Sequence[Kernel], first: Source) -> list[Source]:
    """The type of what each kernel reads first: the pixels' (`first`), or what another gives."""
    return [
        first
        if plan.inputs[0] < 0
        else plan.given
        if plan.given in ("words", "panels")
        else "float32"
        for plan in kernels
    ]


def _stacks(
    todo: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation, extra: int
) -> list[Alone]:
    """Consecutive operations in as many kernels as are worth it.

    There are `extra` kernels more, if that is asked for. Found from the end to the beginning:
    `best[i]` has, for every number of kernels, the cheapest way to do all but the first i
    operations.
    """
    known: Known = {}
    alone: dict[tuple[int, int], float] = {}
    best: dict[int, dict[int, tuple[float, _Chain | None]]] = {len(todo): {0: (0.0, None)}}
    for first in range(len(todo) - 1, -1, -1):
        found: dict[int, tuple[float, _Chain | None]] = {}
        problem: DoesNotFit | None = None
        for end in range(first + 1, min(first + MOST_TOGETHER, len(todo)) + 1):
            part = todo[first:end]
            if part[:-1] and not _together(part, {each.index for each in part}):
                continue
            ways: list[tuple[float, Alone]] = [
                *_in_patches(part, arithmetic, gpu), *_passing(part, arithmetic, gpu)
            ]  # fmt: skip
            if not (ways and only_passes(part)):
                try:
                    plan, chosen = arranged(arithmetic, part, gpu, known)
                    cost = gpu.beside_others * cost_of(plan, gpu)
                    ways.append((cost, Stacked(len(part), *chosen)))
                except DoesNotFit as error:
                    problem = error
            if not ways:
                ways += _in_tiles(part, arithmetic, gpu)
            if ways:
                alone[first, end] = min(own for own, _ in ways)
            for own, kernel in ways:
                for count, (cost, rest) in best[end].items():
                    total = own + cost
                    if count + 1 not in found or total < found[count + 1][0]:
                        found[count + 1] = total, _Chain(kernel, rest)
            if problem:
                break
        if not found:
            assert problem
            raise problem
        best[first] = found
    count = min(best[0], key=lambda count: best[0][count][0] * gpu.worth_it**count)
    counts = (count, _worth_it(alone, len(todo), gpu))
    reached = [best[0].get(each + extra) for each in counts]
    chains = [way[1].kernels for way in reached if way and way[1]]
    if not chains:
        raise DoesNotFit(f"{_named(todo[0])}: no {count + extra} kernels")
    whole, apart = chains[0], chains[-1]
    if apart == whole:
        return whole

    launch = gpu.few.launch * gpu.few.processors / MANY
    costs = [way[0] for way in reached if way]
    clearly = CLEARLY if arithmetic.from_shared else 1.0
    gains = clearly * (costs[-1] + launch * len(apart)) < costs[0] + launch * len(whole)
    return apart if gains else whole


def _worth_it(alone: Mapping[tuple[int, int], float], operations: int, gpu: Generation) -> int:
    """How many kernels are worth it, of what the operations from one place to another cost in one,
    if each stretch is looked at by itself.

    It is cut where that promises to save so much of its own time, and the launches of `MANY`
    images. Held to all of a long network's time, three layers stayed one kernel that was estimated
    to take a fifth more than three.
    """
    launch = gpu.few.launch * gpu.few.processors / MANY
    least: dict[tuple[int, int], tuple[float, int]] = {}
    for length in range(1, min(operations, MOST_TOGETHER) + 1):
        for first in range(operations - length + 1):
            end = first + length
            ways = (
                (least[first, at][0] + least[at, end][0], least[first, at][1] + least[at, end][1])
                for at in range(first + 1, end)
            )
            cost, count = min(ways, default=(math.inf, 0))
            whole = alone.get((first, end), math.inf)
            apart = gpu.worth_it * cost + launch * (count - 1)
            least[first, end] = (whole, 1) if whole <= apart else (cost, count)
    if operations <= MOST_TOGETHER:
        return least[0, operations][1]
    # What is longer is never one kernel: a row of stretches, with their launches.
    best = [(0.0, 0)]
    for end in range(1, operations + 1):
        reached = []
        for first in range(max(0, end - MOST_TOGETHER), end):
            (before, kernels), (cost, count) = best[first], least[first, end]
            reached.append((before + cost + launch * count, kernels + count))
        best.append(min(reached))
    return best[operations][1]


def _in_patches(
    part: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation
) -> Iterator[tuple[float, Patched]]:
    """The best kernel of patches for one wide convolution, if there is any, and what it costs."""
    found = best_for_many(arithmetic, part[0], gpu) if len(part) == 1 else None
    if found is not None:
        yield found[0], found[1].chosen


def _passing(
    part: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation
) -> Iterator[tuple[float, Passed]]:
    """A kernel that does nothing but pass words on, if that is what is to do."""
    plan = passing(arithmetic, part[0]) if len(part) == 1 else None
    if plan is not None:
        yield plan.image_cycles(gpu), Passed()


def _in_tiles(
    part: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation
) -> Iterator[tuple[float, Spread]]:
    """Tiles, as for few images, for what fits nowhere else: they hold no picture."""
    operation, *more = part
    if more or not gpu.panels or operation.gives == "panels" or not can_spread(part):
        return
    plan = best_tiles(arithmetic, (operation,), gpu, MANY)
    if plan is not None:
        yield tiles_cycles(plan, MANY, gpu) * gpu.few.processors / MANY, spread(plan)


class _Chain(NamedTuple):
    """A kernel and those after it."""

    kernel: Alone
    rest: _Chain | None

    @property
    def kernels(self) -> list[Alone]:
        found, chain = [self.kernel], self.rest
        while chain is not None:
            found.append(chain.kernel)
            chain = chain.rest
        return found


def cost_of(plan: Stack, gpu: Generation) -> float:
    """Cycles an image, with what its launch and its results cost."""
    return plan.cycles(gpu) + gpu.launch_cycles + plan.moved(gpu)
