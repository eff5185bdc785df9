"""`constant`: the weights in constant memory.

The course's second optimization: `direct`, but the threads of a warp, which all read the same
weight at the same time, get it from the constant cache in one broadcast. That takes half of
`direct`'s loads off the load units, at 31 to 61 registers where `direct` has 32 to 64 (zoo, sm_90).
Constant memory holds 64 KiB: filters that do not fit together are computed in several launches,
each with its share of the weights; one filter beyond 64 KiB is refused. It should win wherever
`direct` waits for loads, most with small weights, which stay in the constant cache; on an H200 it
won with up to 32 kB of them and lost with 40 and 56 (docs/ladder.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.rungs.gpu.design import (
    EVERY_SPECIAL,
    Array,
    Design,
    Geometry,
    Options,
    oblong_tiles,
    preferring,
    square_tiles,
)
from tilewright.rungs.gpu.direct import plane_work
from tilewright.rungs.gpu.prepare import constant_argument, gpu_rung
from tilewright.runtime.dialect import DoesNotFit, Limits


def build(geometry: Geometry, options: Options) -> Design:
    most = options["filters"]
    groups = [
        (first, min(most, geometry.filters - first)) for first in range(0, geometry.filters, most)
    ]
    works = tuple(
        plane_work(
            "constant_conv", geometry, options, first_filter=first, filters=filters,
            constant_floats=filters * geometry.taps,
        )
        for first, filters in groups
    )  # fmt: skip

    def pack(weight: Array, bias: Array) -> dict[str, Array]:
        packed = {"bias": bias}
        for index, (first, filters) in enumerate(groups):
            packed[constant_argument(index)] = weight[first : first + filters].ravel()
        return packed

    return Design(works, pack=pack)


def filters_together(geometry: Geometry, limits: Limits) -> int:
    """Filters whose weights fit into constant memory."""
    fitting = limits.constant_bytes // (4 * geometry.taps)
    if not fitting:
        raise DoesNotFit(
            f"constant_conv needs {4 * geometry.taps:,} bytes of constant memory for one filter; "
            f"the device has {limits.constant_bytes:,}"
        )
    return min(fitting, geometry.filters)


def few_launches(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    filters = filters_together(geometry, limits)
    return ({**tile, "filters": filters} for tile in square_tiles(geometry, limits))


def others(geometry: Geometry, limits: Limits) -> Iterator[Options]:
    """Also half as many filters and fewer, which the constant cache may hold."""
    filters = filters_together(geometry, limits)
    while True:
        for tiles in (square_tiles, oblong_tiles):
            for tile in tiles(geometry, limits):
                yield {**tile, "filters": filters}
        if filters == 1:
            return
        filters = (filters + 1) // 2


RUNG = gpu_rung(
    "constant",
    "weights in constant memory: a warp's threads get each one in one broadcast",
    preferring(few_launches, others, build, EVERY_SPECIAL),
    against="direct",
)
