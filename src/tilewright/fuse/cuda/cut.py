"""How a network is cut into kernels: as few as fit, where the estimated time is least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda import planned
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import Arrangement, Known, arranged, searched, stack_as
from tilewright.fuse.cuda.choice import Choice, Multiplied, Stacked
from tilewright.fuse.cuda.dense import Dense, dense, denses
from tilewright.fuse.cuda.generations import Generation, generation
from tilewright.fuse.cuda.operations import Operation, only_input, operations
from tilewright.fuse.cuda.stack import Form, Source, Stack
from tilewright.model.network import Stage
from tilewright.runtime.dialect import DoesNotFit

Kernel = Stack | Dense
# Operations that a kernel takes at most, so that time to plan grows as the layers' number does.
MOST_TOGETHER = 32


def cut(stages: Sequence[Stage], arithmetic: Arithmetic, capability: int) -> list[Kernel]:
    """The kernels for all layers from the pixels to the output."""
    return build(stages, arithmetic, capability, choose(stages, arithmetic, capability))


def choose(stages: Sequence[Stage], arithmetic: Arithmetic, capability: int) -> Choice:
    """How these layers are best computed; a search, unless the same was asked for before."""
    gpu = generation(capability)
    todo = tuple(_todo(stages, gpu))
    return _choose(todo, arithmetic, gpu, (*searched(), MOST_TOGETHER))


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


def recut(
    stages: Sequence[Stage], arithmetic: Arithmetic, capability: int, extra: int
) -> Choice | None:
    """The best way with so many kernels more than are chosen; None if there is none."""
    gpu = generation(capability)
    try:
        return _search(_todo(stages, gpu), arithmetic, gpu, extra)
    except DoesNotFit:
        return None


def _search(
    todo: Sequence[Operation], arithmetic: Arithmetic, gpu: Generation, extra: int = 0
) -> Choice:
    kernels: list[Stacked | Multiplied] = []
    at = 0
    while at < len(todo):
        large = _large(todo[at], gpu)
        end = at
        while end < len(todo) and (todo[end].connected if large else not _large(todo[end], gpu)):
            end += 1
        if large and end == len(todo) - 1 and todo[end].kind == "softmax":
            end += 1
        if large:
            # What follows, if anything does, is a softmax in the middle: it reads floats.
            kernels.append(_multiplied(dense(arithmetic, todo[at:end], gpu)))
        else:
            more = todo[end] if end < len(todo) else None
            kernels += _stacks(todo[at:end], arithmetic, more, gpu, extra)
        at = end
    return Choice(gpu.name, tuple(kernels))


def build(
    stages: Sequence[Stage], arithmetic: Arithmetic, capability: int, choice: Choice
) -> list[Kernel]:
    """The kernels as they were chosen; refused if they are not for these layers or this GPU."""
    return list(_build(tuple(stages), arithmetic, generation(capability), choice))


@lru_cache(maxsize=100)
def _build(
    stages: tuple[Stage, ...], arithmetic: Arithmetic, gpu: Generation, choice: Choice
) -> tuple[Kernel, ...]:
    if choice.generation != gpu.name:
        raise TilewrightError(
            f"options.generation: kernels for {choice.generation:.40}, and the GPU is {gpu.name}"
        )
    todo = _todo(stages, gpu)
    kernels: list[Kernel] = []
    at = 0
    for number, chosen in enumerate(choice.kernels):
        end = at + chosen.operations
        plan = None
        if end <= len(todo):
            after = todo[end] if end < len(todo) else None
            before = kernels[-1] if kernels else None
            plan = _kernel(chosen, todo[at:end], arithmetic, gpu, before, todo[at - 1], after)
        if plan is None:
            raise TilewrightError(
                f"options.kernels[{number}]: {chosen!s:.120} is no kernel of these layers that "
                f"fits {gpu.name}"
            )
        if isinstance(plan, Dense) and kernels and isinstance(kernels[-1], Stack):
            kernels[-1] = replace(kernels[-1], result_words=plan.words)
        kernels.append(plan)
        at = end
    if at < len(todo):
        raise TilewrightError(f"options.kernels: they leave {todo[at].names[0]} out")
    return tuple(kernels)


def _kernel(
    chosen: Stacked | Multiplied,
    part: Sequence[Operation],
    arithmetic: Arithmetic,
    gpu: Generation,
    before: Kernel | None,
    last: Operation,
    after: Operation | None,
) -> Kernel | None:
    """A part of the operations in one kernel, `last` coming before and `after` after it."""
    if isinstance(chosen, Multiplied):
        # The first of all kernels reads pixels, which these do not; a softmax comes last of all.
        layers = part[:-1] if part[-1].kind == "softmax" and after is None else part
        if before is None or not _large(part[0], gpu) or not all(x.connected for x in layers):
            return None
        return next((x for x in denses(arithmetic, part, gpu) if _multiplied(x) == chosen), None)
    if len(part) > MOST_TOGETHER or any(_large(each, gpu) for each in part):
        return None
    arrangement = Arrangement(chosen.division, chosen.warps, chosen.groups, chosen.weight)
    first = before is None or isinstance(before, Dense)
    given, gives = _forms(first, last, part, after)
    rounded = after is not None and after.kind == "sum"
    return stack_as(arrangement, arithmetic, part, given, gives, gpu, rounded)


def _multiplied(plan: Dense) -> Multiplied:
    return Multiplied(
        len(plan.operations), plan.warps, plan.columns, plan.more, plan.chunk, plan.stages
    )


def _todo(stages: Sequence[Stage], gpu: Generation) -> list[Operation]:
    todo = operations(stages)
    if not todo or _large(todo[0], gpu):
        todo.insert(0, only_input(stages))
    return todo


def _forms(
    first: bool, last: Operation, part: Sequence[Operation], after: Operation | None
) -> tuple[Form, Form]:
    """In which images come to a part of the operations, and results go; `last` was before it."""
    # Values come one by one to the first kernel of all, to a softmax, and from one.
    alone = first or _between(last, part[0]) == "output"
    return "pixels" if alone else "words", _between(part[-1], after)


def _large(operation: Operation, gpu: Generation) -> bool:
    return operation.connected and operation.weights > gpu.most_connected


def sources(kernels: Sequence[Kernel], first: Source) -> list[Source]:
    """The type of what each kernel reads: `first`, or what the one before it gives."""
    given: list[Source] = ["words" if plan.gives == "words" else "float32" for plan in kernels[:-1]]
    return [first, *given]


def _between(last: Operation, following: Operation | None) -> Form:
    """How results are handed on: a softmax reads and gives floats in the order of an output."""
    softmax = following is None or "softmax" in (last.kind, following.kind)
    return "output" if softmax else "words"


def _stacks(
    todo: Sequence[Operation],
    arithmetic: Arithmetic,
    following: Operation | None,
    gpu: Generation,
    extra: int,
) -> list[Stacked]:
    """Consecutive operations in as few kernels as come near the best way to cut them.

    `following` comes after them. There are `extra` kernels more, if that is asked for. Found from
    the end to the beginning: `best[i]` has, for every number of kernels, the cheapest way to do all
    but the first i operations.
    """
    known: Known = {}
    best: dict[int, dict[int, tuple[float, _Chain | None]]] = {len(todo): {0: (0.0, None)}}
    for first in range(len(todo) - 1, -1, -1):
        found: dict[int, tuple[float, _Chain | None]] = {}
        problem: DoesNotFit | None = None
        for end in range(first + 1, min(first + MOST_TOGETHER, len(todo)) + 1):
            after = todo[end] if end < len(todo) else following
            part = todo[first:end]
            try:
                plan, chosen = arranged(
                    arithmetic,
                    part,
                    *_forms(first == 0, todo[first - 1], part, after),
                    gpu,
                    rounded=after is not None and after.kind == "sum",
                    known=known,
                )
            except DoesNotFit as error:
                problem = error
                break
            own = cost_of(plan, gpu)
            for count, (cost, rest) in best[end].items():
                total = own + cost
                if count + 1 not in found or total < found[count + 1][0]:
                    found[count + 1] = total, _Chain(Stacked(len(part), *chosen), rest)
        if not found:
            assert problem
            raise problem
        best[first] = found
    least = min(cost for cost, _ in best[0].values())
    near = [count for count, (cost, _) in best[0].items() if cost <= gpu.worth_it * least]
    if min(near) + extra not in best[0]:
        raise DoesNotFit(f"{todo[0].names[0]}: no {min(near) + extra} kernels")
    chain = best[0][min(near) + extra][1]
    kernels = []
    while chain is not None:
        kernels.append(chain.kernel)
        chain = chain.rest
    return kernels


class _Chain(NamedTuple):
    """A kernel and those after it."""

    kernel: Stacked
    rest: _Chain | None


def cost_of(plan: Stack, gpu: Generation) -> float:
    """Cycles an image, with what its launch and its results cost."""
    source = plan.strip.source if plan.strip else plan.operations[0].source
    moved = plan.result_words
    if plan.given == "words":
        moved += plan.arithmetic.words(source[0]) * source[1] * source[2]
    return plan.cycles(gpu) + gpu.launch_cycles + moved / gpu.words_a_cycle
