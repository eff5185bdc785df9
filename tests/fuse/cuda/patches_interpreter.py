"""A wide convolution in patches, run in NumPy: the constants that the text is printed with.

One piece of work after the other. Pieces of 16 bytes lie where threads put them, and tensor cores
look for them by the address that a row has: a wrong place shows as wrong numbers, and what nobody
fetched is not a number. Without tensor cores they lie in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import (
    FLOAT,
    activate,
    rounded_halves,
    values,
)
from tests.fuse.cuda.memory import POISON, Memory, Mistake, part
from tilewright.fuse.cuda.emit import text
from tilewright.fuse.cuda.panels import in_whole_panels
from tilewright.fuse.cuda.steps_patches import PatchesProgram

Array = NDArray[Any]
PATCH, PIECE = 8, 4  # positions; words


def run_patches(
    made: PatchesProgram, parameters: Array, images: Array, added: Array | None = None
) -> Array:
    """The results of all images, as words."""
    rows = in_whole_panels(len(images)) if made.to_panels else len(images)
    out = Memory("the results", rows * made.result_words, 0 if made.to_panels else POISON)
    out.begin("results")
    check_rings(made)
    groups = -(-len(images) // made.images)
    works = groups * made.blocks_y * made.blocks_x * made.column_blocks
    for number in range(works):
        Work(made, parameters, images, number).run(out, added)
    return out.words if made.to_panels else out.words.reshape(rows, -1)


def check_rings(made: PatchesProgram) -> None:
    """Who fetches pictures, who fetches weights and who adds up, waiting for each other as the
    kernel has them wait: nobody may wait forever. All that add up do the same."""
    works, tensor = 2, made.arithmetic.tensor
    waits = "L::PICTURES == 1 && turns.done_picture" in text("patches_tensor.cuh")
    early = made.pictures == 1 and waits
    filled, free = [0, 0], [made.pictures, made.stages]  # of pictures, of weights
    fetched = [0, 0]  # in all

    # What is rounded is handed on when so many later chunks are on their way.
    meanwhile = max(0, made.pictures - 2) if made.rounds else 0

    def fetching(which: int, count: int) -> Iterator[None]:
        later = 0 if which else min(meanwhile, count)
        for number in range(count):
            while not free[which]:
                yield
            free[which] -= 1
            filled[which] += number >= later
            fetched[which] += 1
        filled[which] += later

    def adding() -> Iterator[None]:
        held = [0, 0]  # read, and not given back yet

        def give_back() -> None:
            for which in (0, 1):
                free[which] += held[which]
                held[which] = 0

        for _ in range(works):
            for _ in range(made.chunks):
                if early:
                    give_back()
                while not filled[0]:
                    yield
                filled[0] -= 1
                for _ in range(made.turns):
                    while not filled[1]:
                        yield
                    filled[1] -= 1
                    if tensor:
                        give_back()  # what the tap before read
                    held[1] = 1
                    if not tensor:
                        give_back()
                held[0] = 1
                if not tensor:
                    give_back()
            give_back()

    chunks = works * made.chunks
    everybody = [fetching(0, chunks), fetching(1, chunks * made.turns), adding()]
    while everybody:
        before = *fetched, len(everybody)
        everybody = [each for each in everybody if next(each, "done") != "done"]
        if before == (*fetched, len(everybody)):
            raise Mistake("all wait for each other")


def turned(rows: Array) -> Array:
    """Rows of a chunk, whose pieces lie by their rows' addresses, in order."""
    places = np.arange(8) ^ np.arange(len(rows))[:, None] % 8
    pieces = np.take_along_axis(rows.reshape(len(rows), 8, PIECE), places[..., None], 1)
    return pieces.reshape(len(rows), 8 * PIECE)


def turned_parts(given: Array) -> Array:
    return np.stack([turned(each) for each in given])


class Work:
    """Some images, positions and filters."""

    def __init__(self, made: PatchesProgram, parameters: Array, images: Array, number: int) -> None:
        self.made, self.parameters, self.images = made, parameters, images
        number, self.column = divmod(number, made.column_blocks)
        number, x = divmod(number, made.blocks_x)
        number, y = divmod(number, made.blocks_y)
        self.image = number * made.images
        # Images beside each other: eight of them are a patch's columns, and rows of so many sets
        # of eight follow each other.
        self.sets = made.eights or 1
        self.side, self.beside = (1, PATCH) if made.eights else (PATCH, 1)
        self.y, self.x = y * made.tall * made.down // self.sets, x * self.side * made.across
        self.row = made.pitch * self.beside
        # Eights of a line follow each other: so they do in a patch.
        self.below = PATCH if made.line else self.row
        if made.line:
            self.y, self.x = 0, PATCH * self.y
        self.plane = made.rows * self.sets * self.row
        self.each = made.planes_y * made.planes_x * self.plane
        self.patches = made.down * made.across * (1 if made.eights else made.images)

    def run(self, out: Memory, added: Array | None) -> None:
        self.put(out, self.sums(), added)

    def sums(self) -> Array:
        """Of every patch, its positions and filters."""
        made, patches = self.made, self.patches
        positions = made.tall * PATCH
        if made.groups * 128 * math.prod(made.sums) != patches * positions * made.wide:
            raise Mistake("sums that nobody has, or that are none")
        bias = part(self.parameters, made.bias + self.column * made.wide, made.wide).view(FLOAT)
        logical = np.array([self.filter_of(each) for each in range(made.wide)])
        sums = np.tile(bias[logical].astype(np.float64), (patches, positions, 1))
        for chunk in range(made.chunks):
            slots = self.fetched(chunk)
            last = chunk == made.chunks - 1
            words = self.step_words * made.last_steps if last else made.chunk_words
            for turn in range(made.turns):
                for tap, columns in self.weights(chunk, turn):
                    for patch in range(patches):
                        rows = slots[:, self.rows_of(patch, tap), :words]
                        sums[patch] += self.products(rows, columns[..., :words])
        return np.asarray(sums[..., np.argsort(logical)].astype(FLOAT))

    @property
    def step_words(self) -> int:
        return 8 if self.made.arithmetic.tensor else PIECE

    def stage(self, chunk: int, turn: int) -> Array:
        """Weights that come at a time, as they lie."""
        made = self.made
        block = (self.column * made.chunks + chunk) * made.turns + turn
        return part(self.parameters, made.weights + block * made.stage_words, made.stage_words)

    def weights(self, chunk: int, turn: int) -> Iterator[tuple[int, Array]]:
        """The same by taps: of each part, a row of words for every filter."""
        made, given = self.made, self.stage(chunk, turn)
        if made.arithmetic.tensor:
            yield turn, turned_parts(given.reshape(made.arithmetic.parts, made.wide, -1))
            return
        channels = 2 if made.twice else 1
        split = given.reshape(made.taps_y, made.chunk_words // channels, made.wide, channels)
        for down, each in enumerate(split):
            yield down * made.taps_x + turn, each.swapaxes(0, 1).reshape(1, made.wide, -1)

    def filter_of(self, column: int) -> int:
        """Lane t has columns 2t and 2t+1 of 8; of four times 8 these follow each other. Where
        filters are rows, lane g has rows g and g+8 of 16, and these do. Without tensor cores they
        are in order."""
        if not self.made.arithmetic.tensor:
            return column
        if self.made.turned:
            j, g = divmod(column % 16, 8)
            return column // 16 * 16 + 2 * g + j
        n, (t, j) = column // 8, divmod(column % 8, 2)
        return n // 4 * 32 + t * 8 + n % 4 * 2 + j

    def products(self, rows: Array, columns: Array) -> Array:
        """Of parts all products that are not too small to count; of a part that is a float, tensor
        cores read what they do of any."""
        arithmetic = self.made.arithmetic
        bits = np.uint32(0xFFFFE000 if arithmetic.parts > 1 else 0xFFFFFFFF)
        given, weights = (
            values(np.ascontiguousarray(each & bits), arithmetic.per_word).astype(np.float64)
            for each in (rows, columns)
        )
        counted = [(one, two) for one in range(len(given)) for two in range(len(given) - one)]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.sum([given[one] @ weights[two].T for one, two in counted], 0)

    def fetched(self, chunk: int) -> Array:
        """`fetch_pictures`: a piece after the other, each to its place; of each part."""
        made = self.made
        shared = np.full((made.arithmetic.parts, made.slots, made.chunk_words), POISON, np.uint32)
        if made.eights and made.images != PATCH * made.eights:
            raise Mistake("images that lie nowhere, or places of none")
        slot = np.arange((1 if made.eights else made.images) * self.each)
        if len(slot) > made.slots:
            raise Mistake("more pixels than places")
        plane, rest = np.divmod(slot, self.plane)
        row, rest = np.divmod(rest, self.sets * self.row)
        eight, rest = np.divmod(rest, self.row)
        column, beside = np.divmod(rest, self.beside)
        image, plane = np.divmod(plane, made.planes_y * made.planes_x)
        image = image + self.image + PATCH * eight + beside
        y = (self.y + row) * made.stride_y - made.top + plane // made.planes_x
        x = (self.x + column) * made.stride_x - made.left + plane % made.planes_x
        there = (y >= 0) & (y < made.height) & (x >= 0) & (x < made.width)
        there &= image < len(self.images)
        given = self.images.reshape(len(self.images), -1)
        section = self.column // (made.column_blocks // made.sections) * made.own_words
        for piece in range(made.chunk_words // PIECE):
            first = chunk * made.chunk_words + piece * PIECE
            words = np.zeros((len(slot), PIECE), np.uint32)
            for i in range(0, PIECE, made.at_once):
                own = there & (first + i < made.own_words)
                at = (y * made.width + x) * made.words + section + first + i
                at = at[:, None] + np.arange(made.at_once)
                if own.any() and at[own].max() >= given.shape[1]:
                    raise Mistake("device memory: beyond an image")
                if (at[own, 0] % made.at_once).any():
                    raise Mistake("device memory: words that are not copied at once")
                words[own, i : i + made.at_once] = given[image[own][:, None], at[own]]
            kept: tuple[Array, ...] = (words,)
            if made.rounds:
                kept = made.arithmetic.in_parts(words.view(FLOAT))
            place = (piece ^ slot) % 8 if made.changes_places else np.full_like(slot, piece)
            for part_of, own in zip(shared, kept, strict=True):
                part_of[slot[:, None], PIECE * place[:, None] + np.arange(PIECE)] = own
        return turned_parts(shared) if made.changes_places else shared

    def rows_of(self, patch: int, tap: int) -> Array:
        """The places of a patch's pixels that a tap reads: its rows, as far apart as the
        descriptor says, of eight neighbours."""
        made = self.made
        image, rest = divmod(patch, made.down * made.across)
        down, across = divmod(rest, made.across)
        first = image * self.each + down * made.tall * self.below
        first += across * self.side * self.beside
        y, x = divmod(tap, made.taps_x)
        y, x = y * made.apart_y, x * made.apart_x
        plane = y % made.stride_y * made.planes_x + x % made.stride_x
        first += plane * self.plane + y // made.stride_y * self.sets * self.row
        first += x // made.stride_x * self.beside
        found = first + np.arange(made.tall)[:, None] * self.below + np.arange(PATCH)
        if found.max() >= made.slots:
            raise Mistake(f"place {found.max()} of {made.slots}")
        return found.ravel()

    def pictures(self, sums: Array) -> Array:
        """The sums of all patches, (image, row, column, filter)."""
        made = self.made
        if made.line:
            return sums.reshape(made.images, 1, made.down * made.tall * PATCH, -1)
        if made.eights:
            shape = made.down * made.tall // self.sets, self.sets, made.across, PATCH
            rows = sums.reshape(made.down, made.across, made.tall, PATCH, -1).swapaxes(1, 2)
            return (
                rows.reshape(*shape, -1)
                .transpose(1, 3, 0, 2, 4)
                .reshape(made.images, shape[0], made.across, -1)
            )
        shape = made.images, made.down, made.across, made.tall, PATCH
        return (
            sums.reshape(*shape, -1)
            .swapaxes(2, 3)
            .reshape(made.images, made.down * made.tall, made.across * PATCH, -1)
        )

    def put(self, out: Memory, sums: Array, added: Array | None) -> None:
        """`put`: pooling, what is added, activations, and the results."""
        made = self.made
        found, y, x = self.pictures(sums), self.y, self.x
        if made.pool:
            found = found if made.pool == "max" else activate(found, made.before)
            # Two of a window are added first: above each other, or beside each other.
            first, second = (2, 1) if made.turned else (1, 2)
            if made.pool == "average":
                found = FLOAT(0.25) * _twos(np.add, _twos(np.add, found, first), second)
            else:
                found = _twos(np.maximum, _twos(np.maximum, found, first), second)
                found = activate(found, made.before) if made.pool == "max" else found
            y, x = y // 2, x // 2
        found = found[: len(self.images) - self.image, : made.result_y - y, : made.result_x - x]
        for image, row, column in np.ndindex(found.shape[:3]):
            pixel = (y + row) * made.result_x + x + column
            self.put_filters(out, self.image + image, pixel, found[image, row, column], added)

    def put_filters(
        self, out: Memory, image: int, pixel: int, found: Array, added: Array | None
    ) -> None:
        """Those of one result."""
        made, per_word = self.made, self.made.arithmetic.per_word
        first = self.column * made.wide
        filters = min(made.wide, made.filters - first)
        mine = found[:filters]
        if made.added:
            assert added is not None
            own = added.reshape(len(self.images), -1, made.out_words)[image, pixel]
            mine = activate(mine, made.before)
            mine = mine + values(own[None], per_word)[0, first : first + filters]
        mine = activate(mine, made.activations)
        # Half of a last word is nothing.
        mine = np.append(mine, np.zeros(-filters % per_word, FLOAT))
        words = pixel * made.out_words + first // per_word + np.arange(len(mine) // per_word)
        if made.to_panels:
            out.write(in_panels(made, image, words), self.words(mine), 0)
        else:
            out.write(image * made.result_words + words, self.words(mine), 0)

    def words(self, found: Array) -> Array:
        made = self.made
        if made.to == "TW_TO_HALVES":
            return np.ascontiguousarray(rounded_halves(found)).view(np.uint32)
        if made.to == "TW_TO_OPERANDS":
            return made.arithmetic.operands(found[:, None]).ravel()
        return np.ascontiguousarray(found, FLOAT).view(np.uint32)


def _twos(join: np.ufunc, values: Array, axis: int) -> Array:
    """Neighbours along an axis as one."""
    even, odd = (np.take(values, range(each, values.shape[axis], 2), axis) for each in (0, 1))
    return np.asarray(join(even, odd))


def in_panels(made: PatchesProgram, image: int, words: Array) -> Array:
    """`piece_at` of an image's words."""
    piece, inside = words // PIECE, words % PIECE
    begin = image // 256 * (made.out_pieces * 256 * 4) + piece // 8 * (256 * 32)
    return begin + image % 256 * 32 + (piece ^ image) % 8 * 4 + inside
