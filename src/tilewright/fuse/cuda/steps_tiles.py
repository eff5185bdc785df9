"""What the threads of a kernel of tiles do: all its constants, as `tiles.cuh` takes them.

As `steps` for stacks: `emit_tiles` prints it, the tests' interpreter runs it. There is one list of
calls for all of them: rounds of products, sums of warps and of blocks added up, results written.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.program import pool_of
from tilewright.fuse.cuda.stack import Source
from tilewright.fuse.cuda.steps import PoolStep
from tilewright.fuse.cuda.sums import To, into, planes
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.model.layers import Elementwise, Pixels

# Products of 16 rows and a column that are written out one after the other, as multiply-adds and on
# tensor cores.
PRODUCTS = (16, 32)


@dataclass(frozen=True)
class TilesProgram:
    """A kernel; names as in `Tiles` and `steps.Convolve`. Sizes are words, `image_size` what an
    image has of the source's type."""

    arithmetic: Arithmetic
    source: Source
    pixels: Pixels | None  # what bytes mean
    before: tuple[Elementwise, ...]
    activations: tuple[Elementwise, ...]
    pool: PoolStep
    bias: int
    weights: int
    rounds_all: int
    shared_words: int
    threads: int
    tiles: int
    columns: int
    all_columns: int
    down: int
    across: int
    deep: int
    chunk: int
    stages: int
    round_words: int
    round_weights: int
    row: int
    all_rows: int
    piece: int
    corners: int
    channels: int
    height: int
    width: int
    words: int
    image_size: int
    taps_y: int
    taps_x: int
    apart_y: int
    apart_x: int
    stride_y: int
    stride_x: int
    top: int
    left: int
    sum_words: int
    result_y: int
    result_x: int
    result_words: int
    out_pixel: int
    filters: int
    to: To
    plane: int
    paired: bool
    rounds: bool  # what is read is rounded to operands first
    added: bool
    added_words: int
    unroll: int
    parts_at_once: int
    softmax: bool
    STRUCT: ClassVar[tuple[str, ...]] = (
        "threads", "tiles", "columns", "all_columns", "down", "across", "deep", "chunk", "stages",
        "round_words", "round_weights", "row", "all_rows", "piece", "corners", "channels",
        "height", "width", "words", "image_size", "taps_y", "taps_x", "apart_y", "apart_x",
        "stride_y", "stride_x", "top", "left", "sum_words", "result_y", "result_x",
        "result_words", "out_pixel", "filters", "to", "plane", "paired", "rounds", "added",
        "added_words", "unroll", "parts_at_once",
    )  # fmt: skip


def tiles_program(plan: Tiles, pixels: Pixels | None, source: Source) -> TilesProgram:
    """`pixels` say what bytes mean; `source` is the type of what the kernel reads."""
    operation, arithmetic = plan.operation, plan.arithmetic
    window = operation.window
    name, words = operation.names[0], plan.parameter_words
    channels, height, width = operation.source
    floats = plan.gives == "output" or plan.softmax is not None
    sink = (
        planes(operation.result)
        if floats
        else into(plain(arithmetic, operation.result), arithmetic, operation.only_sums)
    )
    pool, before, after = pool_of(operation)
    filters = operation.summed[0]
    at_once = PRODUCTS[arithmetic.tensor] // (plan.tiles * plan.columns * arithmetic.products)
    each = plan.words if source == "words" else channels
    return TilesProgram(
        arithmetic=arithmetic,
        source=source,
        pixels=pixels if source == "uint8" else None,
        before=before,
        activations=after,
        pool=pool,
        bias=words[f"{name}.bias"],
        weights=words[f"{name}.weight"],
        rounds_all=plan.rounds,
        shared_words=plan.shared_bytes // 4,
        threads=plan.threads,
        tiles=plan.tiles,
        columns=plan.columns,
        all_columns=plan.block_columns,
        down=plan.down,
        across=plan.across,
        deep=plan.deep,
        chunk=plan.chunk,
        stages=plan.stages,
        round_words=plan.round_words,
        round_weights=plan.round_weights,
        row=plan.row,
        all_rows=plan.rows,
        piece=plan.piece,
        corners=plan.corners,
        channels=channels,
        height=height,
        width=width,
        words=plan.words,
        image_size=height * width * each,
        taps_y=window.own_taps[0],
        taps_x=window.own_taps[1],
        apart_y=window.apart[0],
        apart_x=window.apart[1],
        stride_y=window.stride[0],
        stride_x=window.stride[1],
        top=window.padding[0],
        left=window.padding[1],
        sum_words=plan.sum_words,
        result_y=operation.result[1],
        result_x=operation.result[2],
        result_words=plan.result_words,
        out_pixel=1 if floats else arithmetic.words(filters),
        softmax=plan.softmax is not None,
        filters=filters,
        to=sink.to,
        plane=sink.plane,
        paired=not floats and filters % 2 == 0,
        rounds=operation.mixed and arithmetic.rounds and source == "words",
        added=operation.added,
        added_words=arithmetic.words(filters),
        unroll=max(1, min(plan.chunk // arithmetic.step, at_once)),
        parts_at_once=max(1, 16 // (plan.tiles * plan.columns)),
    )
