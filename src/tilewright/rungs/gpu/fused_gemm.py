"""`fused-gemm`: the tiled product, unrolling while it loads its tiles.

The course's fourth optimization. As `unroll-gemm`, but the unrolled matrix is never made: a
thread that loads an element of its tile works out which pixel that is. Whole-number operations for
each load replace a pass through device memory. Tiles are 16x16 outputs by 16 taps, one output a
thread, about 2 KiB of shared memory and 32 registers (zoo, sm_90): two shared loads for each
multiply-add are the limit, and 16 rows for 4 or 20 filters leave threads idle.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.rungs.gpu.design import (
    Design,
    Geometry,
    Loop,
    Options,
    Traffic,
    Work,
    fitting_tile,
    preferring,
    shared_size,
    source,
    tiles,
)
from tilewright.rungs.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Limits

TILE = 16


def build(geometry: Geometry, options: Options) -> Design:
    return Design((gemm_work("fused_gemm_conv", geometry, options, fused=True),))


def square_tile(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    yield {"rows": TILE, "columns": TILE, "depth": TILE}


def gemm_tiles(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    """Blocks of two to sixteen warps; no more rows than a power of two that holds the filters."""
    for rows in dict.fromkeys(fitting_tile(geometry.filters, most) for most in (32, 16, 8, 4)):
        for most in (256, 128, 64, 32, 16, 8):
            columns = fitting_tile(geometry.positions, most)
            for depth in (8, 16, 32):
                if 64 <= rows * columns <= 512:
                    yield {"rows": rows, "columns": columns, "depth": depth}


def gemm_work(name: str, geometry: Geometry, options: Options, fused: bool) -> Work:
    """The kernel of `gemm.cl`, a tile of `rows` filters by `columns` positions a block.

    It takes `depth` taps at a time.
    """
    rows, columns, staged_taps = options["rows"], options["columns"], options["depth"]
    tiles_x, tiles_y = tiles(geometry.positions, columns), tiles(geometry.filters, rows)
    constants = {
        **geometry.constants,
        "TILES_X": tiles_x,
        "DEPTH": staged_taps,
        "FUSED": int(fused),
    }
    depth = tiles(geometry.taps, staged_taps) * staged_taps
    blocks = tiles_x * tiles_y
    staged = "sequential, staged in shared memory"
    return Work(
        source(
            name, "gemm.cl", (columns, rows, 1), constants,
            shared_floats=shared_size(rows * (staged_taps + 1), staged_taps * columns),
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
    preferring(square_tile, gemm_tiles, build),
    against="unroll-gemm",
)
