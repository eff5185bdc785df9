"""Convolutions whose filters see one channel each: how many outputs a thread has at a time.

They have little to compute for what they read. A thread reads a column's weights once for all its
outputs, which are above each other, and every row of the picture once for all taps that meet it.
"""

from __future__ import annotations

from tilewright.model.layers import Convolution, Shape

TALL = 8  # outputs at most
MOST_PRODUCTS = 400  # in the code, of a filter
OTHERS = 30  # registers, besides sums and weights
# Instructions for a pixel that is read, and for a result. Chosen.
READ, PUT = 3, 12


def outputs_of_a_thread(layer: Convolution, result: Shape, warps: int, groups: int) -> int:
    """As many as give the busiest thread of a group least to do, with registers for them."""
    (down, across), (filters, height, width) = layer.kernel, result
    columns = width * -(-filters // 2)
    registers = min(255, 65536 // (32 * warps * groups))

    def instructions(tall: int) -> int:
        rows = {
            output * layer.stride[0] + tap * layer.dilation[0]
            for output in range(tall)
            for tap in range(down)
        }
        each = across * (READ * len(rows) + down + 2 * down * tall) + PUT * tall
        return -(-columns * -(-height // tall) // (32 * warps)) * each

    possible = (
        tall
        for tall in range(1, min(height, TALL) + 1)
        if 2 * (tall + down) + OTHERS <= registers and tall * down * across <= MOST_PRODUCTS
    )
    return min(possible, key=instructions, default=1)
