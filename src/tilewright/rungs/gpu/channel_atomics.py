"""`channel-atomics`: input channels split over blocks, which add their shares atomically.

The course's fifth optimization, and expected to be slower: it stays, with its figures. A first
kernel writes the bias into every output; then blocks of up to 16x16 positions of one filter and
one input channel each add their sum to the output with an atomic addition. That gives `channels`
times as many blocks, which a single small image could use; in exchange each output is written
once a channel instead of once, and additions to the same place wait for each other. No shared
memory, 31 or 32 registers (zoo, sm_90). The order of additions changes from run to run, and the
last bits with it. OpenCL C 1.2 has no atomic addition of floats: a compare-and-swap loop takes its
place there.
"""

from __future__ import annotations

from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Design,
    Geometry,
    Loop,
    Options,
    Traffic,
    Work,
    loop_nest,
    oblong_tiles,
    plane_block,
    plane_tiles,
    preferring,
    source,
    square_tiles,
    tiles,
)
from tilewright.rungs.gpu.prepare import gpu_rung


def build(geometry: Geometry, options: Options) -> Design:
    fill = Work(
        source("channel_atomics_bias", "fill.cl", (BLOCK_THREADS, 1, 1), geometry.constants),
        ("bias", "out"),
        blocks=tiles(geometry.outputs, BLOCK_THREADS),
        loops=(Loop("output", geometry.outputs, "block and thread"),),
        traffic=Traffic(global_loads=geometry.outputs, stores=geometry.outputs),
    )
    block = plane_block(options)
    tiles_y, tiles_x = plane_tiles(geometry, block)
    constants = {**geometry.constants, "TILES_Y": tiles_y, "TILES_X": tiles_x}
    products = geometry.outputs * geometry.taps
    add = Work(
        source("channel_atomics_conv", "atomics.cl", block, constants),
        ("x", "weight", "out"),
        blocks=tiles_y * tiles_x * geometry.channels * geometry.filters,
        loops=loop_nest(geometry, channels="block, reduced atomically"),
        traffic=Traffic(global_loads=2 * products, stores=geometry.outputs * geometry.channels),
    )
    return Design((fill, add))


RUNG = gpu_rung(
    "channel-atomics",
    "input channels split over blocks, atomic sums: more blocks, but outputs are contended",
    preferring(square_tiles, oblong_tiles, build),
    against="direct",
)
