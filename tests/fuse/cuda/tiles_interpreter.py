"""A layer's sums in tiles, run in NumPy: the constants that the text is printed with.

One block after the other, on memory that notices races (`memory`). Where blocks share a sum, their
parts are added in order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import (
    FLOAT,
    activate,
    halves,
    maximum,
    operand_columns,
    probabilities,
    products,
    rounded_halves,
    values,
)
from tests.fuse.cuda.memory import EVERYBODY, POISON, Memory, part
from tilewright.fuse.cuda.steps_tiles import TilesProgram

Array = NDArray[Any]


def run_tiles(
    made: TilesProgram,
    parameters: Array,
    images: Array,
    blocks: tuple[int, int, int],
    added: Array | None = None,
) -> Array:
    """The results of all images, as words; `blocks` is the grid."""
    out = Memory("the results", len(images) * made.result_words, POISON)
    out.begin("results")
    for x in range(blocks[0]):
        for y in range(blocks[1]):
            shared = [Block(made, parameters, images, x, y) for _ in range(blocks[2])]
            for number, block in enumerate(shared):
                rounds = [each * made.rounds_all // blocks[2] for each in (number, number + 1)]
                block.add_rounds(*rounds)
            last = shared[-1]
            last.sums = np.sum([block.sums for block in shared], 0)
            last.put(out, added)
    return out.words.reshape(len(images), -1)


class Block:
    """A block's shared memory and registers."""

    def __init__(self, made: TilesProgram, parameters: Array, images: Array, x: int, y: int):
        self.made, self.parameters, self.images, self.x, self.y = made, parameters, images, x, y
        self.shared = Memory("shared memory", made.shared_words)
        self.shared.begin("rounds")
        self.sums = np.zeros((made.all_rows, 8 * made.all_columns))
        rows = np.arange(made.all_rows)
        each = made.all_rows
        result = rows
        if made.pool:
            each, result = each // 4, rows // 32 * 8 + rows % 8
        self.results = x * each + result
        self.image, rest = np.divmod(self.results, made.result_y * made.result_x)
        self.there = self.image < len(images)
        top, left = np.divmod(rest, made.result_x)
        if made.pool:
            top, left = 2 * top + rows // 16 % 2, 2 * left + rows // 8 % 2
        self.top = top * made.stride_y - made.top
        self.left = left * made.stride_x - made.left

    def add_rounds(self, begin: int, end: int) -> None:
        made = self.made
        size = made.all_rows * made.row + made.round_weights
        for stage in range(made.stages - 1):
            if begin + stage < end:
                self.fetch(stage * size, begin + stage)
            self.shared.commit()
        for number in range(begin, end):
            self.shared.arrive(all_but=made.stages - 2)
            self.shared.meet(made.threads)
            ahead = number + made.stages - 1
            if ahead < end:
                self.fetch((ahead - begin) % made.stages * size, ahead)
            self.shared.commit()
            self.multiply((number - begin) % made.stages * size)
        self.shared.arrive()
        self.shared.meet(made.threads)

    def fetch(self, to: int, number: int) -> None:
        """`take_round`, and the weights."""
        made = self.made
        pieces = made.round_words // made.piece
        apart = made.threads // pieces
        thread = np.arange(made.threads)
        for j in range(made.corners):
            row = thread // pieces + j * apart
            mine = (row < made.all_rows) & self.there[np.minimum(row, made.all_rows - 1)]
            if not mine.any():
                continue
            who, row = thread[mine], row[mine]
            piece = who % pieces
            k = number * made.round_words + piece * made.piece
            tap, in_pixel = np.divmod(k, made.words)
            y = self.top[row] + tap // made.taps_x * made.apart_y
            x = self.left[row] + tap % made.taps_x * made.apart_x
            inside = (k < made.sum_words) & (y >= 0) & (y < made.height) & (x >= 0)
            inside &= x < made.width
            words = self.take(self.image[row], np.where(inside, y, 0), np.where(inside, x, 0),
                              in_pixel)  # fmt: skip
            words[~inside] = 0
            at = to + row * made.row + piece * made.piece
            if made.source == "words":
                self.shared.fetch(at, words, who, made.piece)
            else:
                self.shared.write(at, words[:, 0], who)
        i = np.arange(made.round_weights // 4)
        begin = (self.y * made.rounds_all + number) * made.round_weights + made.weights
        weights = part(self.parameters, begin, made.round_weights)
        self.shared.fetch(to + made.all_rows * made.row + 4 * i, weights, i % made.threads)

    def take(self, image: Array, y: Array, x: Array, in_pixel: Array) -> Array:
        """A piece of each of these pixels."""
        made, arithmetic = self.made, self.made.arithmetic
        if made.source == "words":
            at = ((y * made.width + x) * made.words + in_pixel)[:, None] + np.arange(made.piece)
            return self.images.reshape(len(self.images), -1)[image[:, None], at]
        found = np.zeros((len(image), arithmetic.per_word), FLOAT)
        images = self.images.reshape(len(self.images), made.channels, made.height, made.width)
        for half in range(arithmetic.per_word):
            c = in_pixel * arithmetic.per_word + half
            real = c < made.channels
            c = np.where(real, c, 0)
            value = images[image, c, y, x].astype(FLOAT)
            if made.pixels:
                scales, shifts = np.array(made.pixels.scales), np.array(made.pixels.shifts)
                value = (value * scales[c % len(scales)] + shifts[c % len(shifts)]).astype(FLOAT)
            found[real, half] = value[real]
        if arithmetic.per_word == 2:
            return halves(found[:, 0], found[:, 1])[:, None]
        return arithmetic.operands(found)

    def multiply(self, at: int) -> None:
        made, arithmetic = self.made, self.made.arithmetic
        rows = np.flatnonzero(self.there)
        width = 1 if arithmetic.tensor else 2
        lines = at + rows[:, None] * made.row + np.arange(0, made.round_words, width)
        words = self.shared.read(lines, EVERYBODY, width=width).reshape(len(rows), -1)
        if made.rounds:
            words = arithmetic.operands(words.view(FLOAT)).reshape(len(rows), -1)
        begin = at + made.all_rows * made.row
        block = self.shared.read(np.arange(begin, begin + made.round_weights), EVERYBODY)
        steps = made.round_words // arithmetic.step
        weights = operand_columns(block, steps, made.all_columns, arithmetic)
        given = values(words, arithmetic.per_word).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            columns = weights.reshape(given.shape[1], -1).astype(np.float64)
            self.sums[rows] += products(given, columns, arithmetic)

    def put(self, out: Memory, added: Array | None) -> None:
        """`put_sums`: bias, pooling, what is added, activations; then softmax or the results."""
        made = self.made
        filters = min(made.filters - 8 * made.all_columns * self.y, 8 * made.all_columns)
        first = 8 * made.all_columns * self.y
        bias = part(self.parameters, made.bias + first, filters).view(FLOAT)
        sums = (self.sums[:, :filters] + bias).astype(FLOAT)
        rows = np.flatnonzero(self.there)
        if made.pool:
            # 8 windows: left and right of the upper row, then of the lower one.
            four = sums.reshape(-1, 2, 2, 8, filters)
            four = four if made.pool == "max" else activate(four, made.before)
            if made.pool == "average":
                sums = FLOAT(0.25) * (four[:, 0, 0] + four[:, 0, 1] + four[:, 1, 0] + four[:, 1, 1])
            else:
                sums = maximum("pooled").reduce(four, (1, 2)).reshape(-1, 8, filters)
            sums = sums.reshape(-1, filters)
            sums = activate(sums, made.before) if made.pool == "max" else sums
            rows = np.flatnonzero(self.there.reshape(-1, 32)[:, :8].ravel())
            results = self.results.reshape(-1, 32)[:, :8].ravel()[rows]
        else:
            results = self.results[rows]
        sums = sums[rows]
        if made.added:
            assert added is not None
            other = added.reshape(-1, made.added_words)[results]
            more = values(other, made.arithmetic.per_word)[:, first : first + filters]
            sums = activate(sums, made.before) + more
        found = activate(sums, made.activations)
        if made.softmax:
            found = probabilities(found)
        image, rest = np.divmod(results, made.result_y * made.result_x)
        place = image * made.result_words + rest * made.out_pixel
        self.write(out, place, first + np.arange(filters), found)

    def write(self, out: Memory, place: Array, channels: Array, found: Array) -> None:
        made = self.made
        who = np.arange(found.size).reshape(found.shape)
        if made.to == "TW_TO_HALVES":
            even = np.pad(found, ((0, 0), (0, found.shape[1] % 2)))
            words = np.ascontiguousarray(rounded_halves(even)).view(np.uint32)
            out.write(place[:, None] + channels[::2] // 2, words, who[:, ::2])
            return
        words = (
            made.arithmetic.operands(found)
            if made.to == "TW_TO_OPERANDS"
            else np.ascontiguousarray(found, FLOAT).view(np.uint32)
        )
        out.write(place[:, None] + channels * made.plane, words.reshape(found.shape), who)
