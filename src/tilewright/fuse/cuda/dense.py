"""Large fully connected layers, over the batch: one product on many images, and what follows it.

An image alone would read all weights for one product each. So images' features go to device memory,
and a second kernel multiplies many images' at once; it also does the smaller fully connected layers
and the softmax that follow, on rows that stay in shared memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Form, Operation
from tilewright.fuse.cuda.packing import fragments, pack_all
from tilewright.model.network import Parameters
from tilewright.runtime.dialect import DoesNotFit

TILE = 16
MOST_WARPS = 16
STAGES = (4, 3, 2)  # chunks in flight: the most that fit
# Between rows of multiples of 8 words: eight rows that are read at once lie in different banks.
ROW_GAP = 4
# Words of a row that are fetched at a time, if the ring then fits.
CHUNKS = (32, 16, 8)


@dataclass(frozen=True)
class Dense:
    """A kernel's plan: `layers` are fully connected, then softmax if `softmax`."""

    arithmetic: Arithmetic
    layers: tuple[Operation, ...]
    softmax: Operation | None
    warps: int
    columns: int  # tiles of 8 outputs of a warp
    more: int  # tiles of 16 images of a block
    chunk: int
    stages: int
    most_parts: int  # blocks that may share a sum

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (*self.layers, *([self.softmax] if self.softmax else []))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for operation in self.operations for name in operation.names)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def images(self) -> int:
        """Of a block."""
        return TILE * self.more

    @property
    def words(self) -> int:
        """Of an image's features, in whole chunks."""
        channels, height, width = self.layers[0].source
        size = self.arithmetic.words(channels) * height * width
        return -(-size // CHUNKS[0]) * CHUNKS[0]

    @property
    def chunks(self) -> int:
        return self.words // self.chunk

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.layers[0].takes

    @property
    def last(self) -> int:
        """The operation whose result it gives."""
        return self.operations[-1].index

    @property
    def given(self) -> Form:
        return "words"

    @property
    def gives(self) -> Form:
        return "output"

    @property
    def result_words(self) -> int:
        return self.layers[-1].result[0]

    def all_columns(self, layer: int) -> int:
        tiles = -(-self.layers[layer].summed[0] // 8)
        return self.warps * self.columns if layer == 0 else tiles

    def steps(self, layer: int) -> int:
        """Steps of a further layer's sums."""
        words = self.arithmetic.words(self.layers[layer].source[0])
        return -(-words // self.arithmetic.step)

    def row(self, layer: int) -> int:
        """Words from row to row of the features that a further layer, or softmax, reads."""
        if layer == len(self.layers):
            return self.layers[-1].result[0]
        words = self.steps(layer) * self.arithmetic.step
        return -(-words // 8) * 8 + ROW_GAP

    def gap(self, layer: int) -> tuple[int, int]:
        """Words of a row that no feature has but steps read: from where, and how many."""
        words = self.arithmetic.words(self.layers[layer].source[0])
        return words, self.steps(layer) * self.arithmetic.step - words

    def emptied(self, layer: int) -> bool:
        """Whether that gap lies where other rows were: weights there are zero, but not NaN's."""
        return 2 < layer < len(self.layers) and self.gap(layer)[1] > 0

    @property
    def ring_words(self) -> int:
        return self.stages * (self.images * (self.chunk + ROW_GAP) + self.chunk_weights)

    @property
    def chunk_weights(self) -> int:
        return 8 * self.chunk * self.warps * self.columns

    @property
    def row_places(self) -> tuple[int, int]:
        """Words of the two places for rows, used in turn by the layers after the first."""
        sizes = [0, 0]
        for layer in range(1, len(self.layers) + (self.softmax is not None)):
            size = -(-self.images * self.row(layer) // 4) * 4
            sizes[layer % 2] = max(sizes[layer % 2], size)
        return sizes[0], sizes[1]

    @property
    def shared_bytes(self) -> int:
        # Rows lie where the ring was: it is no longer needed then.
        return 4 * max(self.ring_words, sum(self.row_places))

    @property
    def part_floats(self) -> int:
        """Of a block's part of a sum that is shared."""
        return 4 * 32 * self.more * self.warps * self.columns

    def parts(self, images: int, processors: int) -> tuple[int, int]:
        """Blocks over images, and how many of them share each sum."""
        blocks = -(-images // self.images)
        return blocks, max(1, min(self.most_parts, self.chunks, processors // blocks))

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        places, at = {}, 0
        for index, layer in enumerate(self.layers):
            places[f"{layer.names[0]}.bias"] = at
            at += 8 * self.all_columns(index)
        for index, layer in enumerate(self.layers):
            places[f"{layer.names[0]}.weight"] = at
            if index == 0:
                at += self.chunks * self.chunk_weights
            else:
                at += self.steps(index) * self.all_columns(index) * 8 * self.arithmetic.step
        places["all"] = at
        return places

    def parameters(self, given: Parameters) -> Words:
        packers = {
            layer.names[0]: partial(self._pack, index) for index, layer in enumerate(self.layers)
        }
        return pack_all(given, self.parameter_words, self.arithmetic, packers)

    def _pack(self, index: int, weight: NDArray[np.float32]) -> Words:
        """Weights in the order of lanes: features come pixel by pixel, channels last."""
        arithmetic, layer = self.arithmetic, self.layers[index]
        channels, height, width = layer.source
        words = arithmetic.words(channels)
        step = arithmetic.step
        filters = 8 * self.all_columns(index)
        values = np.zeros((filters, height, width, words * arithmetic.per_word), np.float32)
        picture = weight.reshape(len(weight), channels, height, width)
        values[: len(weight), ..., :channels] = picture.transpose(0, 2, 3, 1)
        rows = arithmetic.operands(values.reshape(filters, -1, arithmetic.per_word))
        rows = rows.reshape(filters, -1)
        steps = self.words // step if index == 0 else self.steps(index)
        padded = np.zeros((filters, steps * step), np.uint32)
        padded[:, : rows.shape[1]] = rows
        # As if every step were a row of taps: what varies slowest comes first.
        return fragments(padded.reshape(filters, steps, step), arithmetic.tensor)


def dense(arithmetic: Arithmetic, operations: Sequence[Operation], generation: Generation) -> Dense:
    """The plan for fully connected layers, and softmax if it is last; DoesNotFit if none fits."""
    for plan in denses(arithmetic, operations, generation):
        return plan
    layer = operations[0]
    raise DoesNotFit(
        f"{layer.names[0]}: {layer.summed[0]:,} outputs of a fully connected layer do not fit into "
        f"{generation.shared_bytes:,} bytes of shared memory and a lane's registers"
    )


def denses(
    arithmetic: Arithmetic, operations: Sequence[Operation], generation: Generation
) -> Iterator[Dense]:
    """All plans that fit, the best first."""
    softmax = operations[-1] if operations[-1].kind == "softmax" else None
    layers = tuple(operations[:-1] if softmax else operations)
    tiles = -(-layers[0].summed[0] // 8)
    # The fewest empty columns, then the most warps.
    warps = min(
        range(min(tiles, 4), MOST_WARPS + 1), key=lambda warps: (-(-tiles // warps) * warps, -warps)
    )
    columns = -(-tiles // warps)
    limit, sums, parts = generation.shared_bytes, generation.dense_sums, generation.most_parts
    for more in range(max(1, min(5, sums // (4 * columns))), 0, -1):
        for stages, chunk in itertools.product(STAGES, CHUNKS):
            plan = Dense(arithmetic, layers, softmax, warps, columns, more, chunk, stages, parts)
            if plan.shared_bytes <= limit and 4 * columns * more <= 2 * sums:
                yield plan
