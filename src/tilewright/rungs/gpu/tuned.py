"""`tuned`: register tiles, vector loads, restrict and unrolling.

The course's seventh optimization and more. A thread computes 4 neighbouring positions of several
filters in registers. A few channels at a time, a block stages the pixels under its tile (of one
or several whole images, where these are small) and its filters' weights, which lie in memory in
the order they are needed. For each row of taps a thread loads its pixels four at a time and keeps
them for all taps along x, and loads weights four filters at a time, the same for a whole warp:
with 8 filters and a 5-wide kernel that is 12 loads for 160 multiply-adds, well under the quarter
that load units can follow. Everything inside a channel is unrolled; `restrict` lets loads move
ahead of stores.

Shared memory: up to 48 KiB a block; registers: 56 to 104 a thread (zoo, sm_90). The tile is
chosen by a model of a multiprocessor's cycles (`cost`): idle threads, filters and positions
computed in vain, loads, staging. It should win everywhere but on single small images, which are
too few blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache, lru_cache

import numpy as np

from tilewright.rungs.gpu.design import (
    Array,
    Convolutions,
    Design,
    Geometry,
    Loop,
    Options,
    Traffic,
    Work,
    source,
    tiles,
)
from tilewright.rungs.gpu.prepare import gpu_rung
from tilewright.runtime.dialect import DoesNotFit, Limits
from tilewright.runtime.multiprocessor import REFERENCE, REGISTERS, WARP

WIDE = 4  # positions of a thread: one vector load of pixels at stride 1
MOST_FILTERS = 16  # of a thread: 64 sums
MOST_THREADS = 256
# A warp's instruction in cycles of a multiprocessor: 4 warps multiply-add at once, shared memory
# serves 128 bytes at a time, and staging 32 values takes loads, stores and their indices. WAITING,
# PIECES and ROUNDS were fitted: of some 90 tiles for each convolution of cifar10 and ece408, timed
# on an H200 (2026-11-15), the model then chose one within 3 % of the fastest.
FMA_CYCLES, QUAD_CYCLES, BROADCAST_CYCLES, STAGE_CYCLES = 0.25, 4.0, 1.0, 10.0
WAITING, PIECES, ROUNDS = 0.2, 0.05, 0.05
# The multiprocessor that is modelled: of the GPU the model was fitted on.
MODEL = REFERENCE.multiprocessor


@dataclass(frozen=True)
class Tile:
    """What a block computes: threads along x, y, images and filter groups; channels at a time."""

    columns: int
    rows: int
    images: int
    groups: int
    filters_each: int
    staged: int

    @property
    def threads(self) -> int:
        return self.columns * self.rows * self.images * self.groups

    @property
    def filters(self) -> int:
        return self.groups * self.filters_each


def build(geometry: Geometry, options: Options) -> Design:
    """The kernel of `tuned.cl` with a given tile."""
    tile = Tile(**options)
    tiles_y, tiles_x = tiles(geometry.out_y, tile.rows), tiles(geometry.out_x, tile.columns * WIDE)
    filter_blocks = tiles(geometry.filters, tile.filters)
    padded = tiles(geometry.channels, tile.staged) * tile.staged
    constants = {
        **geometry.constants, "TILES_Y": tiles_y, "TILES_X": tiles_x, "COLUMNS": tile.columns,
        "ROWS": tile.rows, "IMAGES": tile.images, "GROUPS": tile.groups, "WIDE": WIDE,
        "FILTERS_EACH": tile.filters_each, "STAGED": tile.staged, "CHANNELS_PADDED": padded,
        "PITCH": pitch(geometry, tile),
    }  # fmt: skip
    blocks = tiles_y * tiles_x * filter_blocks
    threads = tile.threads / tile.images
    quads = tiles((WIDE - 1) * geometry.stride_x + geometry.taps_x, 4)
    staged = "sequential, staged in shared memory"
    work = Work(
        source(
            "tuned_conv", "tuned.cl", (tile.threads, 1, 1), constants,
            shared_floats=shared_floats(geometry, tile),
        ),
        ("x", "weight", "bias", "out", "images"),
        blocks=blocks,
        images_per_block=tile.images,
        loops=(
            Loop("filter", geometry.filters, "block, thread and registers"),
            Loop("y", geometry.out_y, "block and thread"),
            Loop("x", geometry.out_x, "block, thread and registers"),
            Loop("channel", geometry.channels, staged),
            Loop("kernel y", geometry.taps_y, "sequential, unrolled"),
            Loop("kernel x", geometry.taps_x, "registers, unrolled"),
        ),
        traffic=Traffic(
            global_loads=blocks * padded / tile.staged * shared_floats(geometry, tile)
            / tile.images,
            shared_loads=blocks * threads * padded * geometry.taps_y
            * (quads + geometry.taps_x * tile.filters_each / 4),
            stores=geometry.outputs,
        ),
    )  # fmt: skip

    def pack(weight: Array, bias: Array) -> dict[str, Array]:
        """By block of filters, channel, tap, filter; channels and filters filled up with zeros."""
        shape = (filter_blocks * tile.filters, padded, geometry.taps_y, geometry.taps_x)
        full = np.zeros(shape, np.float32)
        full[: geometry.filters, : geometry.channels] = weight
        split = full.reshape(filter_blocks, tile.filters, *shape[1:])
        return {"weight": np.ascontiguousarray(split.transpose(0, 2, 3, 4, 1)), "bias": bias}

    return Design((work,), pack=pack)


@lru_cache(maxsize=100)
def offered(geometry: Geometry, limits: Limits) -> list[Options]:
    """All tiles that fit, in the order that the model likes them."""
    liked = sorted(fitting(geometry, limits), key=lambda tile: cost(geometry, tile))
    return [asdict(tile) for tile in liked]


@lru_cache(maxsize=1000)
def choose(geometry: Geometry, limits: Limits) -> Tile:
    """The tile that the model of a multiprocessor likes best."""
    tiles_that_fit = fitting(geometry, limits)
    if not tiles_that_fit:
        raise DoesNotFit(
            f"tuned_conv needs more than the device's {limits.shared_bytes:,} bytes of shared "
            f"memory for a window of {geometry.taps_y}x{geometry.taps_x}"
        )
    return min(tiles_that_fit, key=lambda tile: (cost(geometry, tile), tile.staged))


def fitting(geometry: Geometry, limits: Limits) -> list[Tile]:
    return [
        tile
        for tile in possible(geometry)
        if 4 * shared_floats(geometry, tile) <= limits.shared_bytes
        and tile.threads <= limits.threads
    ]


def possible(geometry: Geometry) -> Iterator[Tile]:
    widest = min(8, tiles(geometry.out_x, WIDE))
    highest = min(32, geometry.out_y)
    for columns in {widest, tiles(tiles(geometry.out_x, WIDE), 2), 1} & set(range(1, 9)):
        for rows in {highest, tiles(geometry.out_y, 2), 16, 8, 4, 1}:
            for filters_each in range(4, MOST_FILTERS + 1, 4):
                for groups in range(1, min(8, tiles(geometry.filters, filters_each)) + 1):
                    for images in (1, 2, 4, 8):
                        for staged in {1, 2, 4, 8, geometry.channels}:
                            tile = Tile(columns, rows, images, groups, filters_each, staged)
                            if (
                                rows <= highest
                                and staged <= min(geometry.channels, 16)
                                and tile.threads <= MOST_THREADS
                            ):
                                yield tile


def cost(geometry: Geometry, tile: Tile) -> float:
    """Cycles of a multiprocessor for one image, in a model that only ranks tiles."""
    blocks = tiles(geometry.out_y, tile.rows) * tiles(geometry.out_x, tile.columns * WIDE)
    blocks *= tiles(geometry.filters, tile.filters)
    warps = tiles(tile.threads, WARP)
    quads = tiles((WIDE - 1) * geometry.stride_x + geometry.taps_x, 4)
    fmas = WIDE * tile.filters_each * geometry.taps_x
    # Threads of a warp that work on different filters read different weights.
    same = min(WARP, tile.columns * tile.rows * tile.images)
    weights = geometry.taps_x * tile.filters_each / 4
    row = max(
        FMA_CYCLES * (fmas + quads + weights),
        QUAD_CYCLES * quads + BROADCAST_CYCLES * weights * WARP / same,
    )
    stages = tiles(geometry.channels, tile.staged)
    compute = warps * stages * tile.staged * geometry.taps_y * row
    floats = shared_floats(geometry, tile)
    stage = STAGE_CYCLES * stages * floats / WARP
    # While one block waits at its barriers, the others on the multiprocessor go on.
    registers = 32 + WIDE * tile.filters_each + 4 * quads
    resident = min(
        MODEL.threads // tile.threads,
        REGISTERS // (WARP * warps * registers),
        MODEL.shared_bytes // (4 * floats + MODEL.reserved_bytes),
    )
    waiting = 1 + WAITING / max(1, resident)
    # Rows shorter than 8 threads x 16 bytes are stored in pieces of a cache line.
    pieces = 1 + PIECES * (1 - tile.columns / 8)
    # With all channels at once there is a single round of staging, and nothing to wait for after.
    rounds = 1 + ROUNDS * (stages > 1)
    return blocks * (compute + stage) * waiting * pieces * rounds / tile.images


def pitch(geometry: Geometry, tile: Tile) -> int:
    """Floats from row to row in shared memory: enough, a multiple of 4, and spread over the banks.

    Eight threads load 16 bytes each at a time; where they are on several rows, the rows should
    start in different banks.
    """
    step = WIDE * geometry.stride_x
    quads = tiles((WIDE - 1) * geometry.stride_x + geometry.taps_x, 4)
    return _spread(tile.columns, step, geometry.stride_y, 4 * quads)


@cache  # thousands of tiles have few widths
def _spread(columns: int, step: int, stride_y: int, last: int) -> int:
    """The pitch for so many threads a row, each `step` floats on; the last loads `last` floats."""
    least = tiles((columns - 1) * step + last, 4) * 4

    def conflicts(width: int) -> int:
        places = [
            (thread // columns * stride_y * width + thread % columns * step) % 32
            for thread in range(8)
        ]
        return max(places.count(place) for place in places)

    return min(range(least, least + 32, 4), key=lambda width: (conflicts(width), width))


def shared_floats(geometry: Geometry, tile: Tile) -> int:
    height = (tile.rows - 1) * geometry.stride_y + geometry.taps_y
    pixels = tile.images * tile.staged * height * pitch(geometry, tile)
    return pixels + tile.staged * geometry.taps_y * geometry.taps_x * tile.filters


RUNG = gpu_rung(
    "tuned",
    "register tiles, vector loads, restrict, unrolling: a dozen loads for 160 multiply-adds",
    Convolutions(
        candidates=offered,
        build=build,
        choose=lambda geometry, limits: asdict(choose(geometry, limits)),
    ),
    against="shared",
)
