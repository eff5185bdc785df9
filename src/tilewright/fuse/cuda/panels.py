"""Fully connected layers over the batch on Hopper, a kernel each: features and weights in panels.

A panel is 256 rows: images, or outputs of a layer. Its rows are cut into pieces of 16 bytes, which
lie as tensor cores want them in shared memory (`panels.cuh` says how), so that a chunk of 8 pieces
of many rows is one copy. Layers hand features on in panels, too.

Of many images a block takes up to four times 64 outputs and as many images as give all
multiprocessors the same to do (`Many`); of few, all blocks together read the weights once, and the
warps of a block divide a sum between them (`Few`). Both read the same weights. Where images are
many, pixels, or floats that come from a kernel of another kind, are made into panels first
(`Into`); other kernels write into panels themselves what is read by such a layer.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.environment import cpu_cores
from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.generations import PANELS
from tilewright.fuse.cuda.operations import Form, Operation
from tilewright.fuse.cuda.packing import in_pieces, pack_all
from tilewright.fuse.cuda.panels_ways import (
    PANEL,
    TILE,
    Few,
    How,
    Into,
    Many,
    cycles,
    fastest,
    few_cycles,
)
from tilewright.model.network import Parameters

CHUNK = 8  # pieces
PIECE = 4  # words
# Outputs of a layer whose softmax is taken along: a block has all of them.
MOST_SCORES = 64
LONG = 256  # pieces of a row of which a warp reads more at a time
# Images from which on blocks of more images and fewer warps are faster, in fp32: 2,048 features and
# 10 scores of 10,000 take 42 µs so, and 51 else, but those of 1,000 22 and 10
# (`benchmarks/results/2026-11-18-last-layers-h200.txt`).
MANY_SCORES = 4000
USUAL = 10_000, 132  # images and multiprocessors, where none are given


@dataclass(frozen=True)
class Panels:
    """A kernel's plan: a fully connected layer, then softmax if `softmax`."""

    arithmetic: Arithmetic
    layer: Operation
    softmax: Operation | None
    most_few: int  # images

    @property
    def operations(self) -> tuple[Operation, ...]:
        return (self.layer, *([self.softmax] if self.softmax else []))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for operation in self.operations for name in operation.names)

    @property
    def inputs(self) -> tuple[int, ...]:
        return self.layer.takes

    @property
    def last(self) -> int:
        """The operation whose result it gives."""
        return self.operations[-1].index

    @property
    def given(self) -> Form:
        return self.layer.forms[0]

    @property
    def gives(self) -> Form:
        return self.layer.gives

    @property
    def features(self) -> int:
        return math.prod(self.layer.source)

    @property
    def filters(self) -> int:
        return self.layer.summed[0]

    def pieces(self, values: int) -> int:
        """Of a row of values, in whole chunks."""
        each = PIECE * self.arithmetic.per_word
        return -(-values // (CHUNK * each)) * CHUNK

    @property
    def own_pieces(self) -> int:
        """Of a row that it reads."""
        if self.given == "pixels":
            return self.pieces(self.features)
        channels, height, width = self.layer.source
        each = self.arithmetic.words(channels) * self.arithmetic.per_word
        return self.pieces(each * height * width)

    @property
    def words(self) -> int:
        """Of an image's features."""
        return PIECE * self.own_pieces

    @property
    def outputs(self) -> int:
        """In whole panels."""
        return in_whole_panels(self.filters)

    @property
    def result_words(self) -> int:
        return PIECE * self.pieces(self.filters) if self.gives == "panels" else self.filters

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        name = self.layer.names[0]
        weights = self.outputs * self.words
        return {f"{name}.bias": 0, f"{name}.weight": self.outputs, "all": self.outputs + weights}

    def parameters(self, given: Parameters) -> Words:
        return pack_all(given, self.parameter_words, self.arithmetic,
                        {self.layer.names[0]: self._pack})  # fmt: skip

    def _pack(self, weight: NDArray[np.float32]) -> Words:
        """Weights in panels, each by a thread: the 61 million of AlexNet took 0.5 to 0.8 seconds
        all at once, and take 0.2 so (two cores of an AMD EPYC, 2026-11-19)."""
        made = np.empty((self.outputs // PANEL, PANEL * self.words), np.uint32)

        def pack(number: int) -> None:
            made[number] = in_panels(self._rows(weight[number * PANEL : (number + 1) * PANEL]))

        with ThreadPoolExecutor(min(cpu_cores(), len(made))) as pool:
            list(pool.map(pack, range(len(made))))
        return made.ravel()

    def _rows(self, weight: NDArray[np.float32]) -> Words:
        """Those of a panel; features in the order in which they come."""
        per_word, (channels, height, width) = self.arithmetic.per_word, self.layer.source
        rows = np.zeros((PANEL, self.words * per_word), np.float32)
        picture = weight.reshape(len(weight), channels, height * width)
        if self.given != "pixels":
            # Pixel by pixel, channels last, in whole words.
            whole = self.arithmetic.words(channels) * per_word
            own = rows[: len(weight), : height * width * whole].reshape(len(weight), -1, whole)
            own[..., :channels] = picture.swapaxes(1, 2)
        else:
            rows[: len(weight), : picture[0].size] = picture.reshape(len(weight), -1)
        return self.arithmetic.operands(rows.reshape(PANEL, -1, per_word))

    @property
    def usual(self) -> How:
        """How it works on many images."""
        return self.how(*USUAL, True)[-1]

    @property
    def threads(self) -> int:
        return self.threads_of(self.usual)

    @property
    def shared_bytes(self) -> int:
        return self.bytes_of(self.usual)

    def how(self, images: int, processors: int, share_sums: bool) -> tuple[How, ...]:
        """What is launched for a batch, one after the other."""
        few = (self.few(images),)
        if self.softmax:
            return few
        turns, tensor = self.own_pieces // CHUNK, self.arithmetic.tensor
        fast = fastest(tensor, images, self.filters, turns, processors)
        many = (fast,) if self.given == "panels" else (Into(), fast)
        if share_sums and images <= self.most_few:
            return min((few, many), key=lambda ways: self.cycles(ways, images, processors))
        return many

    def cycles(self, ways: tuple[How, ...], images: int, processors: int) -> float:
        """About how long such launches take."""
        rates, found = PANELS[self.arithmetic.tensor], 0.0
        for way in ways:
            match way:
                case Few():
                    pieces = self.own_pieces
                    found += few_cycles(way, images, self.filters, pieces, processors, rates)
                case Many():
                    turns = self.own_pieces // CHUNK
                    found += cycles(way, images, self.filters, turns, processors, rates)
                case Into():
                    found += rates.launch
        return found

    def few(self, images: int) -> Few:
        """What was fastest on an H200."""
        tensor = self.arithmetic.tensor
        rows = TILE if tensor else min(TILE, 1 << (images - 1).bit_length())
        if self.softmax:
            columns = -(-self.filters // 8)
            if tensor or rows <= 4:
                return Few(1, columns, 16 if columns <= 2 else 8, 2, rows)
            if columns > 2 or images < MANY_SCORES:
                return Few(1, columns, 16, 1, many=True)
            return Few(2, columns, 4, 4, many=True)
        unroll = 4 if tensor and self.own_pieces > LONG else 2
        if images <= TILE:
            return Few(1, 1, 16, unroll, rows)
        if images <= (8 if tensor else 4) * TILE:
            return Few(1, 2, 16, unroll)
        return Few(1, 4, 8, unroll)

    def grid(self, how: How, images: int) -> tuple[int, int, int]:
        match how:
            case Few() | Many():
                return how.grid(images, self.filters)
            case Into():
                # A warp takes 8 rows and 16 pieces; a block has 8 warps.
                warps = -(-images // 8) * -(-self.own_pieces // 16)
                return -(-warps // 8), 1, 1

    def threads_of(self, how: How) -> int:
        match how:
            case Few():
                return 32 * how.warps
            case Many():
                return how.threads(self.arithmetic.tensor)
            case Into():
                return 256

    def bytes_of(self, how: How) -> int:
        match how:
            case Few():
                sums = 512 * how.tiles * how.columns
                return sums * (how.warps + (self.softmax is not None))
            case Many():
                return how.bytes
            case Into():
                return 0


def in_whole_panels(rows: int) -> int:
    return -(-rows // PANEL) * PANEL


def in_panels(words: Words) -> Words:
    """Rows of words, whole panels and chunks of them, in the order of panels."""
    panels = in_pieces(words).reshape(len(words) // PANEL, PANEL, -1, CHUNK, PIECE)
    return np.ascontiguousarray(panels.swapaxes(1, 2)).ravel()


def connected(arithmetic: Arithmetic, operations: tuple[Operation, ...], most_few: int) -> Panels:
    """The plan for a layer, and its softmax if there are two operations."""
    layer, *softmax = operations
    return Panels(arithmetic, layer, softmax[0] if softmax else None, most_few)
