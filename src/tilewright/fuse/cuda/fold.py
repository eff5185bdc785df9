"""The first convolution, computed for four positions at once: those of a pooling window.

With one channel and few filters tensor cores have little to do in a step: of `ece408`'s first layer
a row of 7 taps is 4 words of 8, and 12 filters are 2 columns of 8, a quarter of which is empty. So
four neighbouring pixels become one of four channels, and the four windows under a pooling window
one window over these. Each filter is then four, the same weights at four places; a row of taps is 4
pixels of 2 words, a whole step, 12 filters are 48, six full columns, and nothing is read at odd
pixels. Columns are in such an order that a lane has all four sums of a filter: pooling stays its
own.

    pixels a b            a column of 8 sums:       filters 0 to 7 at position 0 of the window,
           c d  ──► abcd  the next three:           the same at positions 1, 2 and 3;
                          of 4 filters that are     filter 0 at positions 0 and 1, filter 1 at 0 and
                          left, two columns:        1, ...; then all at positions 2 and 3

That pays if it takes fewer products: of three channels a row of taps is a whole step already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.operations import Operation, Window
from tilewright.fuse.cuda.pictures import HALF_STEP
from tilewright.model.layers import Convolution

Floats = NDArray[np.float32]
MOST_CHANNELS = 4
# Fewer products by this much at least.
PAYS = 0.87
# Registers of a lane for sums of a row, and weights: there are 16 warps with 128 of them each.
MOST_REGISTERS = 86


@lru_cache(maxsize=1000)
def folded(operation: Operation, arithmetic: Arithmetic) -> Operation:
    """The same with four positions at once, if it can be and that pays."""
    if not _can_be(operation, arithmetic):
        return operation
    channels, height, width = operation.source
    window = operation.window
    below = window.after or window.padding
    made = replace(
        operation,
        source=(4 * channels, height // 2, width // 2),
        summed=(8 * _columns(operation.result[0]), *operation.result[1:]),
        window=Window(
            (window.taps[0] // 2 + 1, window.taps[1] // 2 + 1),
            padding=(window.padding[0] // 2, window.padding[1] // 2),
            after=(below[0] // 2, below[1] // 2),
        ),
        folded=True,
    )
    weights = 2 * arithmetic.parts * made.window.taps[0]
    registers = _columns(operation.result[0]) * (4 + weights)
    pays = _products(made, arithmetic) < PAYS * _products(operation, arithmetic)
    return made if pays and registers <= MOST_REGISTERS else operation


def _can_be(operation: Operation, arithmetic: Arithmetic) -> bool:
    window, layer = operation.window, operation.stages[0].layer if operation.stages else None
    even = (*operation.source[1:], *window.padding, *(window.after or (0, 0)))
    return (
        arithmetic.tensor
        and operation.kind == "sum"
        and operation.pool != ""
        and operation.takes == (-1,)
        and operation.forms[0] == "pixels"
        and not operation.mixed
        and isinstance(layer, Convolution)
        and (layer.groups, layer.dilation, layer.stride) == (1, (1, 1), (1, 1))
        and operation.source[0] <= MOST_CHANNELS
        and all(each % 2 == 0 for each in even)
    )


def _columns(filters: int) -> int:
    """Of 8 sums, that so many filters are at four positions each."""
    eights, rest = divmod(filters, 8)
    return 4 * eights + (0 if rest == 0 else 2 if rest <= 4 else 4)


def _products(operation: Operation, arithmetic: Arithmetic) -> float:
    """Steps times columns, of all positions."""
    channels, taps = operation.source[0], operation.window.taps
    filters, height, width = operation.summed
    tight = not operation.folded and arithmetic.per_word == 2 and channels in (1, 3)
    words = -(-taps[1] * channels // 2) if tight else taps[1] * arithmetic.words(channels)
    full, rest = divmod(words, arithmetic.step)
    steps = full + (0 if rest == 0 else HALF_STEP if 2 * rest <= arithmetic.step else 1)
    return height * width * taps[0] * steps * -(-filters // 8)


def parameters(operation: Operation, given: Mapping[str, Floats]) -> dict[str, Floats]:
    """The layer's weights at four places each, and its biases, by columns."""
    name = operation.names[0]
    weight = given[f"{name}.weight"]
    filters, channels, taps_y, taps_x = weight.shape
    wide = np.zeros(
        (4, filters, channels, 2 * (taps_y // 2 + 1), 2 * (taps_x // 2 + 1)), np.float32
    )
    for position in range(4):
        down, right = divmod(position, 2)
        wide[position, :, :, down : down + taps_y, right : right + taps_x] = weight
    _, _, _, high, across = wide.shape
    # (position, filter, channel, y, which of two, x, which of two) to channels of four pixels.
    apart = wide.reshape(4, filters, channels, high // 2, 2, across // 2, 2)
    pixels = apart.transpose(0, 1, 4, 6, 2, 3, 5)
    every = pixels.reshape(4, filters, 4 * channels, high // 2, across // 2)
    positions, of = _order(filters)
    there = of < filters
    made = np.zeros((len(of), *every.shape[2:]), np.float32)
    made[there] = every[positions[there], of[there]]
    found = {f"{name}.weight": made}
    if f"{name}.bias" in given:
        bias = np.zeros(len(of), np.float32)
        bias[there] = given[f"{name}.bias"][of[there]]
        found[f"{name}.bias"] = bias
    return found


def _order(filters: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The position and the filter of every sum of all columns."""
    column, own = np.divmod(np.arange(8 * _columns(filters)), 8)
    group, inside = np.divmod(column, 4)
    of, position = 8 * group + own, inside
    if _columns(filters) % 4:
        few = group == group[-1]
        of[few] = 8 * group[few] + own[few] // 2
        position[few] = 2 * inside[few] + own[few] % 2
    return position, of
