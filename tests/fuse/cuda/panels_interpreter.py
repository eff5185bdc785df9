"""Fully connected layers in panels, run in NumPy: every word is looked up where the text would.

Blocks and lanes are not told apart: what is modelled is which word holds what, in device memory and
in the packed parameters, how a sum is divided between warps or chunks, and what becomes of it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import FLOAT, activate, probabilities, rounded_halves, values
from tilewright.fuse.cuda.panels import Panels
from tilewright.fuse.cuda.panels_ways import Few, How, Into, Many
from tilewright.model.layers import Pixels
from tilewright.model.network import Parameters

Array = NDArray[Any]
PROCESSORS = 132


def run_panels(
    plan: Panels, parameters: Parameters, pixels: Pixels, given: Array, images: int, shares: bool
) -> Array:
    """The layer on so many images, as it is launched for them."""
    packed = plan.parameters(parameters)
    for how in plan.how(images, PROCESSORS, shares):
        given = run_way(plan, how, packed, pixels, given, images)
    return given


def run_way(
    plan: Panels, how: How, packed: Array, pixels: Pixels, given: Array, images: int
) -> Array:
    if isinstance(how, Into):
        return in_panels(features(plan, pixels, given).reshape(images, -1))
    if plan.given == "panels" or isinstance(how, Many):
        taken = _rows(given, plan.own_pieces, images)
    else:
        taken = features(plan, pixels, given)
    weights = _rows(packed[plan.outputs :], plan.own_pieces, plan.outputs)
    sums = np.zeros((images, plan.outputs))
    for pieces in _divided(how, plan.own_pieces):
        # Two halves, or a float, of every word of these pieces.
        a, b = (values(each[:, pieces].reshape(len(each), -1), plan.arithmetic.per_word)
                for each in (taken, weights))  # fmt: skip
        with np.errstate(over="ignore", invalid="ignore"):
            sums += a.astype(np.float64) @ b.astype(np.float64).T
    return put(plan, sums, packed[: plan.outputs].view(FLOAT), images)


def put(plan: Panels, sums: Array, bias: Array, images: int) -> Array:
    columns = -(-plan.filters // 8) * 8
    layer = plan.layer
    with np.errstate(over="ignore", invalid="ignore"):
        found = activate((sums + bias)[:, :columns].astype(FLOAT), layer.before + layer.after)
    if plan.softmax:
        return probabilities(found[:, : plan.filters])
    if plan.gives != "panels":
        return found[:, : plan.filters]
    found[:, plan.filters :] = 0
    words = operands(plan, found)
    # Emptied once; what a layer before left there is overwritten, as far as there are columns.
    rows = np.zeros((images, plan.result_words), np.uint32)
    rows[:, : words.shape[1]] = words
    return in_panels(rows)


def in_panels(rows: Array) -> Array:
    """Rows of words, of whole chunks, where panels have them; memory is emptied first."""
    images, words = rows.shape
    found = np.zeros(-(-images // 256) * 256 * words, np.uint32)
    at = place(np.arange(images)[:, None], np.arange(words) // 4, words // 4)
    found[at + np.arange(words) % 4] = rows
    return found


def operands(plan: Panels, found: Array) -> Array:
    if plan.arithmetic.per_word == 2:
        return np.ascontiguousarray(rounded_halves(found)).view(np.uint32)
    return plan.arithmetic.operands(found)


def place(row: Array, piece: Array, pieces: int) -> Array:
    """The first word of a piece: `piece_at`."""
    panel, inside = np.divmod(row, 256)
    return panel * pieces * 1024 + piece // 8 * 8192 + inside * 32 + (piece ^ row) % 8 * 4


def _rows(memory: Array, pieces: int, count: int) -> Array:
    """Row, piece, word; rows from memory in panels."""
    return memory[
        place(np.arange(count)[:, None, None], np.arange(pieces)[:, None], pieces) + np.arange(4)
    ]


def features(plan: Panels, pixels: Pixels, given: Array) -> Array:
    """The same from images."""
    x = given.reshape(len(given), -1)
    if x.dtype == np.uint8:
        channel = np.arange(plan.features) // np.prod(plan.layer.source[1:], dtype=int)
        scales, shifts = (np.array(each, FLOAT) for each in (pixels.scales, pixels.shifts))
        x = x.astype(np.float64) * scales[channel] + shifts[channel]
    rows = np.zeros((len(x), plan.words * plan.arithmetic.per_word), FLOAT)
    rows[:, : plan.features] = x
    return operands(plan, rows).reshape(len(x), plan.own_pieces, 4)


def _divided(how: How, pieces: int) -> list[Array]:
    """What the warps of a block take of a sum, or of every turn, or the blocks of a cluster."""
    if isinstance(how, Few):
        quads = np.arange(pieces).reshape(-1, 4)
        return [quads[warp :: how.warps].ravel() for warp in range(how.warps)]
    assert isinstance(how, Many)
    chunks = np.arange(pieces).reshape(-1, 8)
    bounds = [part * len(chunks) // how.parts for part in range(how.parts + 1)]
    parts = [chunks[first:end] for first, end in itertools.pairwise(bounds)]
    return [each.ravel() for part in parts for each in np.split(part, how.splits, axis=1)]
