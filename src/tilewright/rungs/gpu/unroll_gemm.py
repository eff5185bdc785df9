"""`unroll-gemm`: unroll the input into a matrix, then one tiled matrix product.

The course's third optimization. A first kernel writes, for every image, a matrix of one row a tap
and one column an output position; a second multiplies the filters by it, in tiles of 16x16
outputs and 16 taps staged in shared memory (about 2 KiB a block, 32 to 40 registers in the zoo on
sm_90). The product reads memory in straight lines, whatever the convolution's shape. But the matrix
is up to kernel² times the input, written and read again in full, and the product has more than two
loads for each multiply-add. Batches too large for the matrix go in several launches. It should win
where filters are many enough that the product outweighs the matrix; with the 12 to 24 filters of
docs/ladder.md it loses.
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
    preferring,
    source,
    tiles,
)
from tilewright.rungs.gpu.fused_gemm import gemm_tiles, gemm_work, square_tile
from tilewright.rungs.gpu.prepare import gpu_rung


def build(geometry: Geometry, options: Options) -> Design:
    windows = geometry.channels * geometry.positions
    size = geometry.taps * geometry.positions
    unroll = Work(
        source("unroll_gemm_unroll", "unroll.cl", (BLOCK_THREADS, 1, 1), geometry.constants),
        ("x", "unrolled"),
        blocks=tiles(windows, BLOCK_THREADS),
        loops=(
            Loop("channel", geometry.channels, "block and thread"),
            Loop("position", geometry.positions, "block and thread"),
            Loop("kernel y", geometry.taps_y, "sequential"),
            Loop("kernel x", geometry.taps_x, "sequential"),
        ),
        traffic=Traffic(global_loads=size, stores=size),
    )
    gemm = gemm_work("unroll_gemm_product", geometry, options, fused=False)
    return Design((unroll, gemm), {"unrolled": size})


RUNG = gpu_rung(
    "unroll-gemm",
    "unroll the input into a matrix: the convolution is one tiled product",
    preferring(square_tile, gemm_tiles, build),
    against="direct",
)
