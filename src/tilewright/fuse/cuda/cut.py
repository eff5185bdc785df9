"""How a network is cut into kernels: as few as fit, where the estimated time is least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from tilewright.fuse.cuda import choices
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.arrange import Known, arranged, searched, stack
from tilewright.fuse.cuda.choices import Choice
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
    search = (*searched(), MOST_TOGETHER)
    return list(_cut(tuple(stages), arithmetic, generation(capability), search))


# A proof asks for the same network some ten times, and a build twice.
@lru_cache(maxsize=100)
def _cut(
    stages: tuple[Stage, ...], arithmetic: Arithmetic, gpu: Generation, search: tuple[object, ...]
) -> tuple[Kernel, ...]:
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

    `following` comes after them.
    """
    together = _Together(todo, arithmetic, following, gpu)
    chosen = choices.read(together.question)
    if chosen is None:
        chosen = _search(together)
        choices.keep(together.question, chosen)
    firsts = [0, *(choice.end for choice in chosen)]
    return [
        arranged(arithmetic, *together.settings(first, choice.end), choice.arrangement)
        for first, choice in zip(firsts, chosen, strict=False)
    ]


@dataclass(frozen=True)
class _Together:
    """Operations that are cut into kernels, and what those depend on."""

    todo: Sequence[Operation]
    arithmetic: Arithmetic
    following: Operation | None
    gpu: Generation

    @property
    def question(self) -> str:
        """Everything that the answer depends on, in words; the layers' names are not."""
        after = self.following.alike if self.following else None
        operations = [each.alike for each in self.todo]
        return repr((operations, self.arithmetic, after, self.gpu, *searched(), MOST_TOGETHER))

    def settings(
        self, first: int, end: int
    ) -> tuple[Sequence[Operation], Form, Form, bool, Generation]:
        """Some of them, how they are given and give values, and whether those are rounded."""
        todo = self.todo
        after = todo[end] if end < len(todo) else self.following
        # Values come one by one to the first kernel of all, to a softmax, and from one.
        alone = first == 0 or _between(todo[first - 1], todo[first]) == "output"
        given: Form = "pixels" if alone else "words"
        rounded = after is not None and after.kind == "sum"
        return todo[first:end], given, _between(todo[end - 1], after), rounded, self.gpu


def _search(together: _Together) -> list[Choice]:
    """Found from the end to the beginning: `best[i]` has, for every number of kernels, the cheapest
    way to do all but the first i operations."""
    known: Known = {}
    count_all, gpu = len(together.todo), together.gpu
    best: dict[int, dict[int, tuple[float, _Chain | None]]] = {count_all: {0: (0.0, None)}}
    for first in range(count_all - 1, -1, -1):
        ways: dict[int, tuple[float, _Chain | None]] = {}
        problem: DoesNotFit | None = None
        for end in range(first + 1, min(first + MOST_TOGETHER, count_all) + 1):
            operations, given, gives, rounded, _ = together.settings(first, end)
            try:
                plan, arrangement = stack(
                    together.arithmetic, operations, given, gives, gpu, rounded, known
                )
            except DoesNotFit as error:
                problem = error
                break
            own = _cost(plan, gpu)
            for count, (cost, rest) in best[end].items():
                total = own + cost
                if count + 1 not in ways or total < ways[count + 1][0]:
                    ways[count + 1] = total, _Chain(Choice(end, arrangement), rest)
        if not ways:
            assert problem
            raise problem
        best[first] = ways
    least = min(cost for cost, _ in best[0].values())
    near = [count for count, (cost, _) in best[0].items() if cost <= gpu.worth_it * least]
    chain = best[0][min(near)][1]
    chosen = []
    while chain is not None:
        chosen.append(chain.choice)
        chain = chain.rest
    return chosen


class _Chain(NamedTuple):
    """A kernel and those after it."""

    choice: Choice
    rest: _Chain | None


def _cost(plan: Stack, gpu: Generation) -> float:
    source = plan.strip.source if plan.strip else plan.operations[0].source
    moved = plan.result_words
    if plan.given == "words":
        moved += plan.arithmetic.words(source[0]) * source[1] * source[2]
    return plan.cycles(gpu) + gpu.launch_cycles + moved / gpu.words_a_cycle
