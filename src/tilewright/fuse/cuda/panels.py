"""Fully connected layers over the batch on Hopper, a kernel each: features and weights in panels.

A panel is 64 rows: images, or outputs of a layer. Its rows are cut into pieces of 16 bytes, which
lie as tensor cores want them in shared memory (`panels.cuh` says how), so that a chunk of 8 pieces
of all 64 rows is one copy. Layers hand features on in panels, too.

Of many images a block takes one to three panels and up to 256 outputs (`Many`); of few, all blocks
together read the weights once, and the warps of a block divide a sum between them (`Few`). Both
read the same weights. What comes as pixels, or from a kernel of another kind, is made into panels
first (`Into`) where images are many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.operations import Form, Operation
from tilewright.fuse.cuda.packing import pack_all
from tilewright.model.network import Parameters

PANEL = 64  # rows
CHUNK = 8  # pieces
PIECE = 4  # words
# Outputs of a layer whose softmax is taken along: a block has all of them.
MOST_SCORES = 64
TILE = 16  # images
LONG = 256  # pieces of a row of which a warp reads more at a time
USUAL = 10_000, 132  # images and multiprocessors, where none are given


@dataclass(frozen=True)
class Few:
    """Blocks of `tiles` x 16 images and `columns` x 8 outputs, whose warps divide the sum."""

    tiles: int
    columns: int
    warps: int
    unroll: int  # turns of a warp whose reads are under way together
    rows: int = 16  # of a tile that are computed where there are no tensor cores
    many: bool = False  # there, lanes are images, not outputs


@dataclass(frozen=True)
class Many:
    """Blocks of `panels` x 64 images and `wide` outputs, `blocks` of them a multiprocessor.

    Up to `stages` chunks are in flight, begun by a warp of its own if one `fetches`. `splits` times
    four warps divide the sums of a panel, and `parts` blocks the sums of a block.
    """

    panels: int
    wide: int
    stages: int
    blocks: int
    splits: int = 1
    parts: int = 1
    fetches: bool = False


@dataclass(frozen=True)
class Into:
    """Rows into panels."""


How = Few | Many | Into
# What was fastest on an H200 (2026-11-16) for layers of 512 to 3,136 features and 512 outputs, by
# how many tiles of 64 x 64 outputs there are for a multiprocessor: up to a half, one, two or four.
HALF = Many(1, 64, 8, 1, splits=2, parts=2)
ONE = Many(1, 64, 8, 1, splits=2)
LONG_ONE = Many(1, 64, 12, 1, splits=4)
PLAIN_ONE = Many(1, 64, 8, 1, splits=4)
TWO = Many(1, 64, 4, 3, fetches=True)
FOUR = Many(1, 128, 4, 2, fetches=True)
# Of more, with what an output costs in each.
MORE = ((Many(2, 128, 3, 2, fetches=True), 1.04), (Many(3, 256, 4, 1), 1.0))
PLAIN_MORE = Many(1, 128, 3, 3, fetches=True)


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
        channels, height, width = self.layer.source
        if self.given == "words":
            return self.pieces(self.arithmetic.words(channels) * self.arithmetic.per_word
                               * height * width)  # fmt: skip
        return self.pieces(self.features)

    @property
    def words(self) -> int:
        """Of an image's features."""
        return PIECE * self.own_pieces

    @property
    def outputs(self) -> int:
        """In whole panels."""
        return -(-self.filters // PANEL) * PANEL

    @property
    def result_words(self) -> int:
        return PIECE * self.pieces(self.filters) if self.gives == "panels" else self.filters

    def rows(self, images: int) -> int:
        """Of the memory that its results need."""
        return -(-images // PANEL) * PANEL if self.gives == "panels" else images

    @cached_property
    def parameter_words(self) -> dict[str, int]:
        name = self.layer.names[0]
        weights = self.outputs * self.words
        return {f"{name}.bias": 0, f"{name}.weight": self.outputs, "all": self.outputs + weights}

    def parameters(self, given: Parameters) -> Words:
        return pack_all(given, self.parameter_words, self.arithmetic,
                        {self.layer.names[0]: self._pack})  # fmt: skip

    def _pack(self, weight: NDArray[np.float32]) -> Words:
        """Weights in panels; features in the order in which they come."""
        per_word, (channels, height, width) = self.arithmetic.per_word, self.layer.source
        picture = weight.reshape(len(weight), channels, height, width)
        if self.given == "words":
            # Pixel by pixel, channels last, in whole words.
            more = self.arithmetic.words(channels) * per_word - channels
            picture = np.pad(picture, ((0, 0), (0, more), (0, 0), (0, 0))).transpose(0, 2, 3, 1)
        rows = np.zeros((self.outputs, self.words * per_word), np.float32)
        rows[: len(weight), : picture[0].size] = picture.reshape(len(weight), -1)
        return in_panels(self.arithmetic.operands(rows.reshape(self.outputs, -1, per_word)))

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
        if self.softmax or (share_sums and images <= self.most_few):
            return (self._few(images),)
        many = self._many(images, processors)
        return (many,) if self.given == "panels" else (Into(), many)

    def _few(self, images: int) -> Few:
        """What was fastest on an H200."""
        tensor = self.arithmetic.tensor
        rows = TILE if tensor else min(TILE, 1 << (images - 1).bit_length())
        if self.softmax:
            columns = -(-self.filters // 8)
            if tensor or rows <= 4:
                return Few(1, columns, 16 if columns <= 2 else 8, 2, rows)
            if columns > 2 or images < 1000:
                return Few(1, columns, 8, 2, many=True)
            return Few(2, columns, 4, 4, many=True)
        unroll = 4 if tensor and self.own_pieces > LONG else 2
        if images <= TILE:
            return Few(1, 1, 16, unroll, rows)
        if images <= (8 if tensor else 4) * TILE:
            return Few(1, 2, 16, unroll)
        return Few(1, 4, 8, unroll)

    def _many(self, images: int, processors: int) -> Many:
        tensor = self.arithmetic.tensor
        tiles = -(-images // PANEL) * self.outputs // PANEL
        if 2 * tiles <= processors:
            return HALF
        if tiles <= processors:
            long = self.own_pieces > LONG // 2
            return (LONG_ONE if long else ONE) if tensor else PLAIN_ONE
        if tiles <= 2 * processors:
            return TWO
        if not tensor:
            return PLAIN_MORE
        if tiles <= 4 * processors:
            return FOUR

        def work(each: tuple[Many, float]) -> float:
            """Of the multiprocessor that has the most."""
            how, cost = each
            x, y, _ = self.grid(how, images)
            return -(-x * y // processors) * how.panels * how.wide * cost

        return min(MORE, key=work)[0]

    def grid(self, how: How, images: int) -> tuple[int, int, int]:
        match how:
            case Few():
                return -(-self.filters // (8 * how.columns)), -(-images // (16 * how.tiles)), 1
            case Many():
                rows = PANEL * how.panels
                return -(-self.filters // how.wide), -(-images // rows), how.parts
            case Into():
                # A warp takes 8 rows and 16 pieces; a block has 8 warps.
                warps = -(-images // 8) * -(-self.own_pieces // 16)
                return -(-warps // 8), 1, 1

    def threads_of(self, how: How) -> int:
        match how:
            case Few():
                return 32 * how.warps
            case Many():
                return 128 * how.panels * how.splits + 32 * how.fetches
            case Into():
                return 256

    def bytes_of(self, how: How) -> int:
        match how:
            case Few():
                sums = 512 * how.tiles * how.columns
                return sums * (how.warps + (self.softmax is not None))
            case Many():
                chunks = how.stages * (how.panels + how.wide // PANEL)
                return 4 * PANEL * CHUNK * PIECE * chunks
            case Into():
                return 0


def in_panels(words: Words) -> Words:
    """Rows of words, whole panels and chunks of them, in the order of panels."""
    rows = len(words)
    split = words.reshape(rows // PANEL, PANEL // 8, 8, -1, CHUNK, PIECE)
    # Panel, group of rows, row, chunk, piece, word.
    return np.ascontiguousarray(split.transpose(0, 3, 1, 4, 2, 5)).ravel()


def connected(arithmetic: Arithmetic, operations: tuple[Operation, ...], most_few: int) -> Panels:
    """The plan for a layer, and its softmax if there are two operations."""
    layer, *softmax = operations
    return Panels(arithmetic, layer, softmax[0] if softmax else None, most_few)
