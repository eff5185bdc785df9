"""`fused-gemm`: the tiled product, unrolling while it loads its tiles.

The course's fourth optimization. As `unroll-gemm`, but the unrolled matrix is never made: a
thread that loads an element of its tile works out which pixel that is. Whole-number operations for
each load replace a pass through device memory. Tiles are 16x16 outputs by 16 taps, one output a
thread, about 2 KiB of shared memory and 32 registers (zoo, sm_90): two shared loads for each
multiply-add are the limit, and 16 rows for 4 or 20 filters leave threads idle.
"""

from __future__ import annotations

from tilewright.ladder.gpu.design import (
    Design,
    Geometry,
    Loop,
    Traffic,
    Work,
    shared_size,
    source,
    tiles,
)
from tilewright.ladder.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Limits

TILE = 16


def design(geometry: Geometry, limits: Limits) -> Design:
    return Design((gemm_work("fused_gemm_conv", geometry, fused=True),))


def gemm_work(
    name: str, geometry: Geometry, fused: bool, rows: int = TILE, columns: int = TILE
) -> Work:
    """The kernel of `gemm.cl`, a tile of `rows` filters by `columns` positions a block."""
    tiles_x, tiles_y = tiles(geometry.positions, columns), tiles(geometry.filters, rows)
    constants = {**geometry.constants, "TILES_X": tiles_x, "DEPTH": TILE, "FUSED": int(fused)}
    depth = tiles(geometry.taps, TILE) * TILE
    blocks = tiles_x * tiles_y
    staged = "sequential, staged in shared memory"
    return Work(
        source(
            name, "gemm.cl", (columns, rows, 1), constants,
            shared_floats=shared_size(rows * (TILE + 1), TILE * columns),
        ),
        ("x" if fused else "unrolled", "weight", "bias", "out"),
        blocks=blocks,
        loops=(
            Loop("filter", geometry.filters, "block and thread"),
            Loop("position", geometry.positions, "block and thread"),
            Loop("channel", geometry.channels, staged),
            Loop("kernel y", geometry.taps_y, staged),
            Loop("kernel x", geometry.taps_x, staged),
        ),
        traffic=Traffic(
            global_loads=blocks * depth * (rows + columns),
            shared_loads=2 * blocks * depth * rows * columns,
            stores=geometry.outputs,
        ),
    )  # fmt: skip


RUNG = gpu_rung(
    "fused-gemm",
    "unroll while loading the product's tiles: the matrix is never written",
    design,
    against="unroll-gemm",
)
