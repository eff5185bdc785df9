"""One layer's sums cut into tiles over all multiprocessors: the form for few images.

A block takes some positions and some filters of a layer, whichever images the positions are of.
Pictures between layers lie in device memory, that is in the second cache. Many images are better
off with `stack`, which moves none.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.beside import with_parameters
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Form, OfOperation, Operation
from tilewright.fuse.cuda.packing import expanded, fragments, pack_all
from tilewright.model.network import Parameters

TILE = 16
# Between rows of multiples of 8 words: eight rows that are read at once lie in different banks.
ROW_GAP = 4
MOST_WARPS = 16
MOST_CORNERS = 16  # rows whose words a thread fetches: it keeps in mind where they lie
STAGES = (4, 3, 2)  # rounds in flight: the most that fit
# Warps over rows, over columns, and that share sums.
LAYOUTS = tuple(
    each for each in itertools.product((1, 2, 4, 8, 16), repeat=3)
    if 4 <= math.prod(each) <= MOST_WARPS and each[0] <= 4 and each[1] <= 4
)  # fmt: skip
MOST_PARTS = 32  # blocks that share a sum
MOST_SHARED = 100 * 1024  # bytes, so that two blocks have a multiprocessor


@dataclass(frozen=True)
class Tiles(OfOperation):
    """A kernel's plan: who computes what of one operation's sums."""

    arithmetic: Arithmetic
    operation: Operation
    softmax: Operation | None  # of its results, if that is what comes next
    tiles: int  # of 16 rows, of a warp
    columns: int  # of 8 filters, of a warp
    down: int  # warps over rows
    across: int  # warps over columns
    deep: int  # warps that share a sum
    chunk: int  # words of a sum that a warp takes in a round
    stages: int  # rounds in flight
    most_parts: int  # blocks that may share a sum

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (self.operation, *([self.softmax] if self.softmax else []))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for operation in self.operations for name in operation.names)

    @property
    def threads(self) -> int:
        return 32 * self.down * self.across * self.deep

    @property
    def rows(self) -> int:
        """Of a block."""
        return TILE * self.tiles * self.down

    @property
    def block_columns(self) -> int:
        return self.columns * self.across

    @property
    def column_blocks(self) -> int:
        return -(-self.operation.summed[0] // (8 * self.block_columns))

    @property
    def results(self) -> int:
        """Of an image: positions, or windows of four of them."""
        return math.prod(self.operation.result[1:])

    @property
    def block_results(self) -> int:
        return self.rows // (4 if self.operation.pool else 1)

    def row_blocks(self, images: int) -> int:
        return -(-images * self.results // self.block_results)

    def parts(self, images: int, processors: int) -> int:
        """How many blocks share each sum."""
        blocks = self.row_blocks(images) * self.column_blocks
        return max(1, min(self.most_parts, self.rounds, processors // blocks))

    @property
    def words(self) -> int:
        """Of a pixel."""
        return self.arithmetic.words(self.operation.source[0])

    @property
    def sum_words(self) -> int:
        return math.prod(self.operation.window.own_taps) * self.words

    @property
    def round_words(self) -> int:
        return self.chunk * self.deep

    @property
    def rounds(self) -> int:
        return -(-self.sum_words // self.round_words)

    @property
    def row(self) -> int:
        """Words from row to row of what a round reads."""
        return self.round_words + ROW_GAP

    @property
    def round_weights(self) -> int:
        """Words of a block's."""
        return self.round_words * 8 * self.block_columns

    @property
    def piece(self) -> int:
        """Words that are fetched at once: all of one pixel."""
        if self.operation.forms[0] != "words":
            return 1
        return math.gcd(self.words, 4)

    @property
    def pieces(self) -> int:
        """Of a row, in a round."""
        return self.round_words // self.piece

    @property
    def corners(self) -> int:
        """Rows whose words a thread fetches."""
        return -(-self.rows * self.pieces // self.threads)

    @property
    def shared_bytes(self) -> int:
        ring = self.stages * (self.rows * self.row + self.round_weights)
        scores = self.rows * self.operation.summed[0] if self.softmax else 0
        return 4 * max(ring, (self.deep - 1) * self.part_floats, scores)

    @property
    def part_floats(self) -> int:
        """Sums of a block, all lanes' registers."""
        return self.rows * 8 * self.block_columns

    @property
    def registers(self) -> int:
        """Of a lane: sums, and a step's operands; and where the rows lie that it fetches."""
        each = 2 if self.arithmetic.tensor else 4
        operands = self.arithmetic.parts * (each * self.columns + 8)
        return 4 * self.tiles * self.columns + operands + 4 * self.corners

    @property
    def last(self) -> int:
        """The operation whose result it gives."""
        return self.operations[-1].index

    @property
    def gives(self) -> Form:
        return self.operations[-1].gives

    @property
    def result_words(self) -> int:
        channels, height, width = self.operation.result
        if self.gives == "output":
            return channels * height * width
        return self.arithmetic.words(channels) * height * width

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        name = self.operation.names[0]
        filters = 8 * self.block_columns * self.column_blocks
        return {
            f"{name}.bias": 0,
            f"{name}.weight": filters,
            "all": filters + self.column_blocks * self.rounds * self.round_weights,
        }

    def parameters(self, given: Parameters) -> Words:
        packers = {self.operation.names[0]: self._pack}
        given = with_parameters(self.operation.stages, given, self.arithmetic)
        return pack_all(given, self.parameter_words, self.arithmetic, packers)

    def _pack(self, given: NDArray[np.float32]) -> Words:
        """Weights in the order of lanes, block by block, round by round."""
        arithmetic, operation = self.arithmetic, self.operation
        window = operation.window
        channels, taps = operation.source[0], window.own_taps
        weight = expanded(operation.stages[0], given).reshape(-1, channels, *window.taps)
        weight = weight[..., :: window.apart[0], :: window.apart[1]]
        each = 8 * self.block_columns
        values = np.zeros(
            (each * self.column_blocks, *taps, self.words * arithmetic.per_word), np.float32
        )
        values[: len(weight), ..., :channels] = weight.transpose(0, 2, 3, 1)
        rows = arithmetic.operands(values.reshape(len(values), -1, arithmetic.per_word))
        step = arithmetic.step
        padded = np.zeros((len(values), self.rounds * self.round_words), np.uint32)
        padded[:, : self.sum_words] = rows.reshape(len(values), -1)
        steps = padded.reshape(self.column_blocks, each, -1, step)
        return np.concatenate([fragments(block, arithmetic.tensor) for block in steps])


def can_spread(part: Sequence[Operation]) -> bool:
    """Whether there is such a kernel for operations: a sum, and softmax of what it gives."""
    sums, *softmax = part
    return (
        sums.kind == "sum"
        and all(form == "words" for form in sums.forms[1:])
        and all(
            each.kind == "softmax" and each.takes == (sums.index,) and len(part) == 2
            and sums.result[1:] == (1, 1) and sums.last_reader == each.index
            for each in softmax
        )
    )  # fmt: skip


def fits(plan: Tiles, generation: Generation) -> bool:
    """Whether there can be such a kernel."""
    operation, arithmetic = plan.operation, plan.arithmetic
    shape = (plan.tiles, plan.columns, plan.down, plan.across, plan.deep)
    return (
        min(*shape, plan.chunk, plan.most_parts) >= 1
        and all(each & (each - 1) == 0 for each in shape[2:])
        and plan.threads <= 32 * MOST_WARPS
        and plan.chunk % max(arithmetic.step, 8) == 0
        and not (plan.softmax and plan.column_blocks > 1)
        and 2 <= plan.stages <= STAGES[0]
        and not (operation.pool and plan.tiles % 2)
        and plan.threads % plan.pieces == 0
        and plan.corners <= MOST_CORNERS
        and plan.shared_bytes <= min(MOST_SHARED, generation.shared_bytes)
        and plan.registers + generation.other_registers <= min(255, 65536 // plan.threads)
    )


def all_tiles(
    arithmetic: Arithmetic, part: Sequence[Operation], generation: Generation
) -> Iterator[Tiles]:
    """The plans that are compared: all that fit, but no warp without filters."""
    operation, softmax = part[0], part[1] if len(part) > 1 else None
    most_columns = -(-operation.summed[0] // 8)
    for (down, across, deep), tiles, columns, chunk in itertools.product(
        LAYOUTS, (2, 4) if operation.pool else (1, 2, 4), (1, 2, 3, 4, 5, 6, 8), (8, 16, 32, 64)
    ):
        if columns * across >= most_columns + columns or 4 * tiles * columns > 128:
            continue
        for stages in STAGES:
            plan = Tiles(arithmetic, operation, softmax, tiles, columns, down, across, deep, chunk,
                         stages, MOST_PARTS)  # fmt: skip
            if fits(plan, generation):
                yield plan
                break
