"""`unroll-gemm`: unroll the input into a matrix, then one tiled matrix product.

The course's third optimization. A first kernel writes, for every image, a matrix of one row a tap
and one column an output position; a second multiplies the filters by it, in tiles of 16x16
outputs and 16 taps staged in shared memory (about 2 KiB a block, 32 to 40 registers in the zoo on
sm_90). The product reads memory in straight lines, whatever the convolution's shape. But the
matrix is kernel² times the input: it is written and read again in full, and that traffic is the
limit. Batches too large for it go in several launches. It wins where filters are many enough that
the product outweighs the matrix; with 4 to 24 filters it loses.
"""

from __future__ import annotations

from tilewright.ladder.gpu.design import (
    BLOCK_THREADS,
    Design,
    Geometry,
    Loop,
    Traffic,
    Work,
    source,
    tiles,
)
from tilewright.ladder.gpu.fused_gemm import gemm_work
from tilewright.ladder.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Limits


def design(geometry: Geometry, limits: Limits) -> Design:
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
    gemm = gemm_work("unroll_gemm_product", geometry, fused=False)
    return Design((unroll, gemm), {"unrolled": size})


RUNG = gpu_rung(
    "unroll-gemm",
    "unroll the input into a matrix: the convolution is one tiled product",
    design,
    against="direct",
)
