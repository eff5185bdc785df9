"""How a network is cut into kernels: as few as fit, where the estimated time is least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import Known, stack
from tilewright.fuse.cuda.dense import Dense, dense
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
    return list(_cut(tuple(stages), arithmetic, capability))


# A proof asks for the same network some ten times, and a build twice.
@lru_cache(maxsize=100)
def _cut(stages: tuple[Stage, ...], arithmetic: Arithmetic, capability: int) -> tuple[Kernel, ...]:
    gpu = generation(capability)
    todo = operations(stages)
    if not todo or _large(todo[0], gpu):
        todo.insert(0, only_input(stages))
    kernels: list[Kernel] = []
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
            last = dense(arithmetic, todo[at:end], gpu)
            before = kernels[-1]
            if isinstance(before, Stack):
                kernels[-1] = replace(before, result_words=last.words)
            kernels.append(last)
        else:
            more = todo[end] if end < len(todo) else None
            kernels += _stacks(todo[at:end], arithmetic, more, gpu)
        at = end
    return tuple(kernels)


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
) -> list[Stack]:
    """Consecutive operations in as few kernels as come near the best way to cut them.

    `following` comes after them. Found from the end to the beginning: `best[i]` has, for every
    number of kernels, the cheapest way to do all but the first i operations.
    """
    known: Known = {}
    best: dict[int, dict[int, tuple[float, _Chain | None]]] = {len(todo): {0: (0.0, None)}}
    for first in range(len(todo) - 1, -1, -1):
        found: dict[int, tuple[float, _Chain | None]] = {}
        problem: DoesNotFit | None = None
        for end in range(first + 1, min(first + MOST_TOGETHER, len(todo)) + 1):
            after = todo[end] if end < len(todo) else following
            # Values come one by one to the first kernel of all, to a softmax, and from one.
            alone = first == 0 or _between(todo[first - 1], todo[first]) == "output"
            given: Form = "pixels" if alone else "words"
            try:
                plan = stack(
                    arithmetic,
                    todo[first:end],
                    given,
                    _between(todo[end - 1], after),
                    gpu,
                    rounded=after is not None and after.kind == "sum",
                    known=known,
                )
            except DoesNotFit as error:
                problem = error
                break
            own = _cost(plan, gpu)
            for count, (cost, rest) in best[end].items():
                total = own + cost
                if count + 1 not in found or total < found[count + 1][0]:
                    found[count + 1] = total, _Chain(plan, rest)
        if not found:
            assert problem
            raise problem
        best[first] = found
    least = min(cost for cost, _ in best[0].values())
    near = [count for count, (cost, _) in best[0].items() if cost <= gpu.worth_it * least]
    chain = best[0][min(near)][1]
    plans = []
    while chain is not None:
        plans.append(chain.plan)
        chain = chain.rest
    return plans


class _Chain(NamedTuple):
    """A kernel and those after it."""

    plan: Stack
    rest: _Chain | None


def _cost(plan: Stack, gpu: Generation) -> float:
    source = plan.strip.source if plan.strip else plan.operations[0].source
    moved = plan.result_words
    if plan.given == "words":
        moved += plan.arithmetic.words(source[0]) * source[1] * source[2]
    return plan.cycles(gpu) + gpu.launch_cycles + moved / gpu.words_a_cycle
