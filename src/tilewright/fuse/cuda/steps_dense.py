"""What the threads of a kernel for fully connected layers do, as a typed list, and how it is made.

As `steps` for stacks: `emit_dense` prints the list, the tests' interpreter runs it. Addresses are
words of shared memory, of the parameters for weights and biases; None is the block's place in the
result.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.dense import ROW_GAP, Dense
from tilewright.fuse.cuda.steps import Barrier, Clear
from tilewright.fuse.cuda.sums import To
from tilewright.model.layers import Elementwise


@dataclass(frozen=True)
class Outputs:
    """A layer's results: `out_row` words an image, behind bias and activations."""

    at: int | None
    bias: int
    activations: tuple[Elementwise, ...]
    warps: int
    all_columns: int
    filters: int
    to: To
    plane: int
    paired: bool
    out_row: int
    STRUCT: ClassVar[tuple[str, ...]] = (
        "warps",
        "all_columns",
        "filters",
        "to",
        "plane",
        "paired",
        "out_row",
    )


@dataclass(frozen=True)
class Products:
    """The first layer's sums, in registers: features and weights come in chunks through a ring."""

    outputs: Outputs
    weights: int
    more: int
    columns: int
    chunk: int
    row: int
    chunk_weights: int
    words: int
    stages: int
    STRUCT: ClassVar[tuple[str, ...]] = (
        "more",
        "columns",
        "chunk",
        "row",
        "chunk_weights",
        "words",
        "stages",
    )


@dataclass(frozen=True)
class Gather:
    """Where several blocks share a sum, the last of them adds the parts up; the others are done."""


@dataclass(frozen=True)
class Finish:
    """The first layer's sums from registers to where the next layer reads them."""

    outputs: Outputs
    more: int
    columns: int


@dataclass(frozen=True)
class Empty:
    """Zeros at the end of every row, where steps read words that are no feature's."""

    at: int
    rows: int
    row: int
    first: int
    words: int
    threads: int


@dataclass(frozen=True)
class Connect:
    """A further layer, from rows in shared memory; weights straight from device memory."""

    index: int
    at: int
    weights: int
    outputs: Outputs
    row: int
    steps: int
    row_tiles: int
    STRUCT: ClassVar[tuple[str, ...]] = ("row", "steps", "row_tiles")


@dataclass(frozen=True)
class SoftmaxRows:
    """Scores into probabilities, a warp an image."""

    at: int
    row: int
    size: int
    warps: int


DenseStep = Products | Gather | Clear | Barrier | Finish | Empty | Connect | SoftmaxRows


@dataclass(frozen=True)
class DenseProgram:
    """A kernel: what a block does with its images."""

    arithmetic: Arithmetic
    threads: int
    images: int  # of a block
    chunks: int
    shared_words: int
    result_words: int
    steps: tuple[DenseStep, ...]


def dense_program(plan: Dense) -> DenseProgram:
    layers, threads = plan.layers, plan.threads
    first = _outputs(plan, 0)
    steps: list[DenseStep] = [
        Products(
            outputs=first,
            weights=plan.parameter_words[f"{layers[0].names[0]}.weight"],
            more=plan.more,
            columns=plan.columns,
            chunk=plan.chunk,
            row=plan.chunk + ROW_GAP,
            chunk_weights=plan.chunk_weights,
            words=plan.words,
            stages=plan.stages,
        ),
        Gather(),
        Clear(sum(plan.row_places), threads),
        Barrier(threads, block=True),
        Finish(first, plan.more, plan.columns),
    ]
    for index in range(1, len(layers)):
        steps.append(Barrier(threads, block=True))
        if plan.emptied(index + 1):
            begin, size = plan.gap(index + 1)
            row = plan.row(index + 1)
            steps.append(Empty(_place(plan, index + 1), plan.images, row, begin, size, threads))
        steps.append(
            Connect(
                index=index,
                at=_place(plan, index),
                weights=plan.parameter_words[f"{layers[index].names[0]}.weight"],
                outputs=_outputs(plan, index),
                row=plan.row(index),
                steps=plan.steps(index),
                row_tiles=plan.more,
            )
        )
    if plan.softmax:
        last = len(layers)
        rows = SoftmaxRows(_place(plan, last), plan.row(last), layers[-1].result[0], plan.warps)
        steps += [Barrier(threads, block=True), rows]
    return DenseProgram(
        arithmetic=plan.arithmetic,
        threads=threads,
        images=plan.images,
        chunks=plan.chunks,
        shared_words=plan.shared_bytes // 4,
        result_words=plan.result_words,
        steps=tuple(steps),
    )


def _place(plan: Dense, index: int) -> int:
    """Where the rows lie that layer `index` reads, or the softmax."""
    return plan.row_places[0] if index % 2 else 0


def _outputs(plan: Dense, index: int) -> Outputs:
    layer, last = plan.layers[index], index + 1 == len(plan.layers)
    to: To = "TW_TO_FLOATS"
    if not last:
        to = "TW_TO_HALVES" if plan.arithmetic.per_word == 2 else "TW_TO_OPERANDS"
    done = last and not plan.softmax
    return Outputs(
        at=None if done else _place(plan, index + 1),
        bias=plan.parameter_words[f"{layer.names[0]}.bias"],
        activations=layer.before + layer.after,
        warps=plan.warps,
        all_columns=plan.all_columns(index),
        filters=layer.summed[0],
        to=to,
        plane=1,
        paired=False,
        out_row=plan.result_words if done else plan.row(index + 1),
    )
