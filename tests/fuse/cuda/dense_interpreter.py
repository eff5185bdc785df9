"""Fully connected layers over the batch, run in NumPy: the steps that the text is printed from.

One block after the other, on memory that notices races (`memory`). Where blocks share a sum, each
runs as far as `Gather`; then the parts are added in their order and the last block goes on.
"""

from __future__ import annotations

from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import (
    FLOAT,
    activate,
    halves,
    operand_columns,
    probabilities,
    products,
    values,
)
from tests.fuse.cuda.memory import EVERYBODY, POISON, Memory, Mistake, part
from tilewright.fuse.cuda.steps import Barrier, Clear
from tilewright.fuse.cuda.steps_dense import (
    Connect,
    DenseProgram,
    DenseStep,
    Empty,
    Finish,
    Gather,
    Outputs,
    Products,
    SoftmaxRows,
)

Array = NDArray[Any]


def run_dense(made: DenseProgram, parameters: Array, features: Array, parts: int = 1) -> Array:
    """The results of all images, of whose sums so many blocks share each."""
    found = []
    for first in range(0, len(features), made.images):
        shared = [Block(made, parameters, features, first) for _ in range(parts)]
        at = next(i for i, step in enumerate(made.steps) if isinstance(step, Gather))
        for number, block in enumerate(shared):
            block.begin = number * made.chunks // parts
            block.end = (number + 1) * made.chunks // parts
            for step in made.steps[:at]:
                block.step(step)
        last = shared[-1]
        last.sums = np.sum([block.sums for block in shared], 0)
        for step in made.steps[at:]:
            last.step(step)
        found.append(last.out.words.view(FLOAT).reshape(last.rows, -1))
    return np.concatenate(found)


class Block:
    """A block's shared memory and registers, and the steps that work on them."""

    def __init__(self, made: DenseProgram, parameters: Array, features: Array, first: int) -> None:
        self.made, self.parameters, self.features, self.first = made, parameters, features, first
        self.arithmetic = made.arithmetic
        self.rows = min(made.images, len(features) - first)
        self.begin, self.end = 0, made.chunks
        self.shared = Memory("shared memory", made.shared_words)
        self.out = Memory("a result", self.rows * made.result_words, POISON)
        self.sums: Array = np.zeros(0)

    def step(self, step: DenseStep) -> None:
        for memory in (self.shared, self.out):
            memory.begin(type(step).__name__)
        match step:
            case Products():
                self.products(step)
            case Gather():
                pass
            case Clear():
                i = np.arange(step.words)
                self.shared.write(i, np.uint32(0), i % step.threads)
            case Barrier():
                if step.threads != self.made.threads:
                    raise Mistake(f"a barrier of {step.threads} threads")
                self.shared.meet(self.made.threads)
            case Finish():
                self.put(step.outputs, self.sums, 0, 0, step.columns)
            case Empty():
                i = np.arange(step.rows * step.words)
                row, word = np.divmod(i, step.words)
                at = step.at + row * step.row + step.first + word
                self.shared.write(at, np.uint32(0), i % step.threads)
            case Connect():
                self.connect(step)
            case SoftmaxRows():
                self.softmax(step)
            case unknown:
                assert_never(unknown)

    def products(self, step: Products) -> None:
        """`multiply_chunks`: the ring has `stages` chunks, one of which is multiplied."""
        size = self.made.images * step.row + step.chunk_weights
        self.sums = np.zeros((self.made.images, 8 * step.outputs.all_columns))

        def fetch(chunk: int) -> None:
            if chunk < self.end:
                self.fetch(step, (chunk - self.begin) % step.stages * size, chunk)
            self.shared.commit()

        for stage in range(step.stages - 1):
            fetch(self.begin + stage)
        for chunk in range(self.begin, self.end):
            self.shared.arrive(all_but=step.stages - 2)
            self.shared.meet(self.made.threads)
            fetch(chunk + step.stages - 1)
            self.multiply(step, (chunk - self.begin) % step.stages * size)
        self.shared.arrive()
        self.shared.meet(self.made.threads)

    def fetch(self, step: Products, to: int, chunk: int) -> None:
        pieces = step.chunk // 4
        i = np.arange(self.made.images * pieces)
        row, piece = np.divmod(i, pieces)
        image = np.minimum(self.first + row, len(self.features) - 1)
        at = (chunk * step.chunk + 4 * piece)[:, None] + np.arange(4)
        words = self.features[image[:, None], at]
        self.shared.fetch(to + row * step.row + 4 * piece, words, i % self.made.threads)
        i = np.arange(step.chunk_weights // 4)
        begin = step.weights + chunk * step.chunk_weights
        words = part(self.parameters, begin, step.chunk_weights)
        weights = to + self.made.images * step.row
        self.shared.fetch(weights + 4 * i, words, i % self.made.threads)

    def multiply(self, step: Products, at: int) -> None:
        lines = at + np.arange(self.made.images)[:, None] * step.row
        given = self.read(lines, step.chunk)
        begin = at + self.made.images * step.row
        size = 8 * step.chunk * step.outputs.all_columns
        block = self.shared.read(np.arange(begin, begin + size), EVERYBODY)
        self.sums += self.product(given, block, step.chunk, step.outputs.all_columns)

    def read(self, lines: Array, words: int) -> Array:
        """So many words of every row: one by one on tensor cores, otherwise two at once."""
        if self.arithmetic.tensor:
            found = self.shared.read(lines + np.arange(words), EVERYBODY)
        else:
            found = self.shared.read(lines + np.arange(0, words, 2), EVERYBODY, width=2)
        return values(found.reshape(len(lines), -1), self.arithmetic.per_word).astype(np.float64)

    def product(self, given: Array, block: Array, words: int, columns: int) -> Array:
        steps = words // self.arithmetic.step
        weights = operand_columns(block, steps, columns, self.arithmetic)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = weights.reshape(given.shape[1], -1).astype(np.float64)
            return products(given, columns, self.arithmetic)

    def connect(self, step: Connect) -> None:
        words, columns = step.steps * self.arithmetic.step, step.outputs.all_columns
        block = part(self.parameters, step.weights, words * columns * 8)
        # Tiles of 16 rows that begin behind the last image are not computed.
        tiles = min(step.row_tiles, -(-self.rows // 16))
        lines = step.at + np.arange(16 * tiles)[:, None] * step.row
        sums = self.product(self.read(lines, words), block, words, columns)
        for tile in range(tiles):
            rows = sums[16 * tile : 16 * tile + 16]
            self.put(step.outputs, rows, 16 * tile, tile * columns, 1)

    def put(self, outputs: Outputs, sums: Array, row: int, unit: int, columns: int) -> None:
        """`finish`: sums of rows from `row` on; a warp has so many columns at a time."""
        sums = sums[: self.rows - row]
        channel = np.arange(0, outputs.filters, 2)
        bias = part(self.parameters, outputs.bias, sums.shape[1]).view(FLOAT)
        with np.errstate(over="ignore", invalid="ignore"):
            found = activate((sums + bias).astype(FLOAT), outputs.activations)
        rows = np.arange(len(found))[:, None]
        warp = (unit + channel // 8) // columns % outputs.warps
        lanes = 32 * warp + 4 * (rows % 8) + channel // 2 % 4
        memory, base = (self.out, 0) if outputs.at is None else (self.shared, outputs.at)
        at = base + (row + rows) * outputs.out_row
        low, high = found[:, channel], found[:, channel + 1]
        if outputs.to == "TW_TO_HALVES":
            memory.write(at + channel // 2, halves(low, high), lanes)
            return
        if outputs.to == "TW_TO_OPERANDS":
            low, high = self.arithmetic.operands(low), self.arithmetic.operands(high)
        else:
            low, high = low.view(np.uint32), high.view(np.uint32)
        memory.write(at + channel, low, lanes)
        both = channel + 1 < outputs.filters
        memory.write(at + channel[both] + 1, high[:, both], lanes[:, both])

    def softmax(self, step: SoftmaxRows) -> None:
        row, i = np.arange(self.rows)[:, None], np.arange(step.size)
        lanes = 32 * (row % step.warps) + i % 32
        scores = self.shared.read(step.at + row * step.row + i, lanes).view(FLOAT)
        self.out.write(row * step.size + i, probabilities(scores).view(np.uint32), lanes)
