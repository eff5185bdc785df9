"""`shared`: the input tile and the weights in shared memory.

The course's first optimization. A block computes a tile of up to 16x16 positions of one output
plane: channel by channel its threads load the pixels under the tile (with the halo the kernel
needs around it) and the filter's weights of that channel, wait for each other, and sum from
shared memory. That takes (15·stride + kernel)² + kernel² floats; tiles shrink until it fits.
Registers: 32 to 40 (zoo, sm_90). Each pixel is loaded once a block instead of once for each tap.
But loads from shared memory are still two for each multiply-add, the caches of today's GPUs did
much of this already, and every channel costs two barriers: with few channels and small kernels it
gains little, and can lose.
"""

from __future__ import annotations

from tilewright.rungs.gpu.design import (
    Design,
    Geometry,
    Options,
    Traffic,
    Work,
    loop_nest,
    oblong_tiles,
    plane_block,
    plane_tiles,
    preferring,
    shared_size,
    source,
    square_tiles,
)
from tilewright.rungs.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Block


def build(geometry: Geometry, options: Options) -> Design:
    block = plane_block(options)
    tiles_y, tiles_x = plane_tiles(geometry, block)
    constants = {**geometry.constants, "TILES_Y": tiles_y, "TILES_X": tiles_x}
    staged = _staged(geometry, block)
    blocks = tiles_y * tiles_x * geometry.filters
    threads = block[0] * block[1]
    work = Work(
        source("shared_conv", "shared.cl", block, constants, shared_floats=shared_size(*staged)),
        ("x", "weight", "bias", "out"),
        blocks=blocks,
        loops=loop_nest(geometry, channels="sequential, staged in shared memory"),
        traffic=Traffic(
            global_loads=blocks * geometry.channels * sum(staged),
            shared_loads=2 * blocks * threads * geometry.taps,
            stores=geometry.outputs,
        ),
    )
    return Design((work,))


def _staged(geometry: Geometry, block: Block) -> tuple[int, int]:
    """A channel's pixels under a tile, and a filter's weights for it: floats of two arrays."""
    x, y, _ = block
    height = (y - 1) * geometry.stride_y + geometry.taps_y
    width = (x - 1) * geometry.stride_x + geometry.taps_x
    return height * width, geometry.taps_y * geometry.taps_x


RUNG = gpu_rung(
    "shared",
    "input tile and weights staged in shared memory: each is loaded once a block",
    preferring(square_tiles, oblong_tiles, build),
    against="direct",
)
