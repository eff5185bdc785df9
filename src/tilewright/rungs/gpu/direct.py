"""`direct`: a thread an output, with the bounds test inside.

The thesis's "if" version and the course's baseline. Blocks are tiles of up to 16x16 positions of
one output plane; a thread walks over channels and taps and asks at each one whether it lies
inside the image. No shared memory; 54 to 64 registers with the test, 32 without (zoo, sm_90).
Every product loads its two operands: neighbours in a block share them through the caches only, so
the load units are the limit, at two loads for each multiply-add where a multiprocessor wants at
most a quarter. Without padding there is no test. On single small images it beats `tuned`, whose
blocks are too few (docs/ladder.md).
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.rungs.gpu.design import (
    EVERY_SPECIAL,
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
    source,
    square_tiles,
)
from tilewright.rungs.gpu.prepare import gpu_rung


def build(geometry: Geometry, options: Options) -> Design:
    return Design((plane_work("direct_conv", geometry, options),))


def plane_work(
    name: str,
    geometry: Geometry,
    options: Options,
    argument: str = "x",
    first_filter: int = 0,
    filters: int | None = None,
    constant_floats: int = 0,
) -> Work:
    """The kernel of `direct.cl` on an argument, for some filters or all."""
    block = plane_block(options)
    tiles_y, tiles_x = plane_tiles(geometry, block)
    count = geometry.filters if filters is None else filters
    constants = {
        **geometry.constants, "TILES_Y": tiles_y, "TILES_X": tiles_x, "FIRST_FILTER": first_filter,
    }  # fmt: skip
    products = count * geometry.positions * geometry.taps
    return Work(
        source(name, "direct.cl", block, constants, constant_floats=constant_floats),
        (argument, *(() if constant_floats else ("weight",)), "bias", "out"),
        blocks=tiles_y * tiles_x * count,
        loops=loop_nest(replace(geometry, filters=count)),
        traffic=Traffic(
            global_loads=products if constant_floats else 2 * products,
            constant_loads=products if constant_floats else 0,
            stores=count * geometry.positions,
        ),
    )


RUNG = gpu_rung(
    "direct",
    "a thread an output, bounds test inside: thousands of sums at the same time",
    preferring(square_tiles, oblong_tiles, build, EVERY_SPECIAL),
)
