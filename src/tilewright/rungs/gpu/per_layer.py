"""`per-layer`: the fused product with a tile shape chosen for each layer's size.

The course's sixth optimization. `fused-gemm`'s 16 rows suit 16 filters; with 4 filters three
quarters of the threads compute nothing. Here a block has as many rows as leave the fewest idle
(at most 16), and as many columns as make about 256 threads, but no more than there are positions.
Costs are `fused-gemm`'s. It gains what was idle: 1.2 to 1.3 times at 20 filters, nothing at 16
(H200, docs/ladder.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Design,
    Geometry,
    Options,
    fitting_tile,
    power_of_two,
    preferring,
    tiles,
)
from tilewright.rungs.gpu.fused_gemm import TILE, gemm_tiles, gemm_work
from tilewright.rungs.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import Limits


def build(geometry: Geometry, options: Options) -> Design:
    return Design((gemm_work("per_layer_conv", geometry, options, fused=True),))


def fewest_idle(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    rows, columns = tile(geometry.filters, geometry.positions)
    yield {"rows": rows, "columns": columns, "depth": TILE}


def tile(filters: int, positions: int) -> tuple[int, int]:
    """Rows and columns of a block: the fewest rows computed in vain, then the largest tile."""
    rows = min(range(1, TILE + 1), key=lambda size: (tiles(filters, size) * size, -size))
    columns = fitting_tile(positions, power_of_two(BLOCK_THREADS // rows))
    return rows, columns


RUNG = gpu_rung(
    "per-layer",
    "tile shape chosen for each layer's filters and positions: the fewest idle threads",
    preferring(fewest_idle, gemm_tiles, build),
    against="fused-gemm",
)
