"""All that is to do: a network's operations, with how their results are handed on.

Between kernels a result is words; what a large fully connected layer reads, in panels on Hopper;
what is read as floats, or by nobody, as the network's output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import (
    Form,
    Operation,
    only_input,
    operations,
    with_copy,
)
from tilewright.fuse.cuda.panels import MOST_SCORES
from tilewright.model.network import Stage


def to_do(stages: Sequence[Stage], gpu: Generation) -> list[Operation]:
    """All operations, with how their results are handed on from kernel to kernel."""
    # One convolution of several may fit nowhere but in tiles, which Hopper alone has for that.
    todo = operations(stages, merge=gpu.warpgroups) or [only_input(stages)]
    at = 0
    while at < len(todo):
        end = over_the_batch(todo, at, gpu) if is_large(todo[at], gpu) else at + 1
        if is_large(todo[at], gpu) and not _has_own_rows(todo, at, gpu):
            todo = with_copy(todo, at)
            end += 1
        at = end
    return handed_on(todo, gpu)


def handed_on(todo: Sequence[Operation], gpu: Generation) -> list[Operation]:
    """The same with how each result goes to its readers."""
    readers = _readers(todo)
    gives: dict[int, Form] = {-1: "pixels"}
    sums: dict[int, bool] = {}
    made = []
    at = 0
    while at < len(todo):
        large = is_large(todo[at], gpu)
        end = over_the_batch(todo, at, gpu) if large else at + 1
        for each in todo[at:end]:
            of = readers[each.index]
            floats = not of or large or "softmax" in (each.kind, *(one.kind for one in of))
            gives[each.index] = "output" if floats else "words"
            between = large and each is not todo[end - 1] and of[0].connected
            # What a large layer takes is made for it alone.
            if gpu.panels and (between or (not floats and is_large(of[0], gpu))):
                gives[each.index] = "panels"
        at = end
    for index, of in readers.items():
        sums[index] = bool(of) and all(
            one.kind == "sum" and one.takes.count(index) == 1 and one.takes[0] == index
            for one in of
        )
    for each in todo:
        # Floats in the order of an output come as pixels that are floats already do.
        forms: tuple[Form, ...] = tuple(
            gives[taken] if gives[taken] in ("words", "panels") else "pixels"
            for taken in each.takes
        )
        made.append(
            replace(
                each,
                forms=forms,
                gives=gives[each.index],
                only_sums=sums[each.index],
                in_rows=not gpu.panels and any(is_large(one, gpu) for one in readers[each.index]),
                mixed=each.kind == "sum" and not sums[each.takes[0]],
                last_reader=max((one.index for one in readers[each.index]), default=each.index),
            )
        )
    return made


def _readers(todo: Sequence[Operation]) -> dict[int, list[Operation]]:
    """Who reads the pixels (-1), and the result of each operation."""
    found: dict[int, list[Operation]] = {-1: [], **{each.index: [] for each in todo}}
    for each in todo:
        for taken in dict.fromkeys(each.takes):
            found[taken].append(each)
    return found


def over_the_batch(todo: Sequence[Operation], at: int, gpu: Generation) -> int:
    """Where the fully connected layers end that are done over the batch from operation `at` on.

    A softmax that is last of all belongs to them, in panels if it has few scores.
    """
    readers: dict[int, int] = {}
    for each in todo[at:]:
        for taken in each.takes:
            readers[taken] = readers.get(taken, 0) + 1
    end = at + 1
    while (
        end < len(todo)
        and todo[end].takes == (todo[end - 1].index,)
        and readers[todo[end - 1].index] == 1
        and (
            todo[end].connected
            or (
                todo[end].kind == "softmax"
                and end == len(todo) - 1
                and (not gpu.panels or todo[end - 1].summed[0] <= MOST_SCORES)
            )
        )
    ):
        end += 1
    return end


def _has_own_rows(todo: Sequence[Operation], at: int, gpu: Generation) -> bool:
    """Whether what a large fully connected layer takes is made for it alone, in words or panels."""
    (taken,) = todo[at].takes
    if taken < 0 and gpu.panels:
        return True  # pixels are read as they come
    if taken < 0 or sum(taken in each.takes for each in todo) > 1:
        return False
    # Not by a kernel over the batch: that gives floats.
    first = taken
    while todo[first].connected and todo[first].takes == (first - 1,) and first > 0:
        if is_large(todo[first], gpu):
            return False
        first -= 1
    return todo[taken].kind != "softmax" and not is_large(todo[first], gpu)


def is_large(operation: Operation, gpu: Generation) -> bool:
    return operation.connected and operation.weights > gpu.most_connected
