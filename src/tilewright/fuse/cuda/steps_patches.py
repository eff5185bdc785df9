"""What a kernel of patches is told: all its constants, as `patches.cuh` takes them.

As `steps` for stacks: `emit_patches` prints it, the tests' interpreter runs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.patches import PIECE, Patches
from tilewright.fuse.cuda.patches_plain import PlainPatches
from tilewright.fuse.cuda.patches_tensor import TAPS_A_SUM, TensorPatches
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.program import pool_of
from tilewright.fuse.cuda.steps import PoolStep
from tilewright.fuse.cuda.sums import To, into
from tilewright.model.layers import Elementwise


@dataclass(frozen=True)
class PatchesProgram:
    """A kernel; names as in `Patches`. `height` and `width` are of the picture that is read,
    `result_y` and `result_x` of what is written; sizes are words."""

    arithmetic: Arithmetic
    before: tuple[Elementwise, ...]
    activations: tuple[Elementwise, ...]
    pool: PoolStep
    bias: int
    weights: int
    threads: int
    sharing: int
    registers: int
    images: int
    down: int
    across: int
    groups: int
    wide: int
    tall: int
    sums: tuple[int, int]
    chunk_words: int
    pixel_bytes: int
    changes_places: bool  # a pixel's pieces, by where it lies
    turns: int
    stage_words: int
    stages: int
    pictures: int
    planes_y: int
    planes_x: int
    rows: int
    pitch: int
    slots: int
    blocks_y: int
    blocks_x: int
    column_blocks: int
    chunks: int
    last_steps: int
    height: int
    width: int
    words: int
    own_words: int  # of a pixel that a block reads
    sections: int  # of channels
    taps_y: int
    taps_x: int
    stride_y: int
    stride_x: int
    top: int
    left: int
    result_y: int
    result_x: int
    result_words: int
    out_words: int
    out_pieces: int
    filters: int
    to: To
    to_panels: bool
    rounds: bool  # what is read is rounded to operands first
    added: bool
    eights: int
    line: bool
    apart_y: int  # taps
    apart_x: int
    at_once: int  # words of a pixel that are copied
    out_at_once: int  # and that are written
    # With tensor cores:
    turned: bool = False
    units: int = 0
    columns: int = 0
    taps_a_sum: int = 0
    # Without:
    own: int = 0
    twice: bool = False
    together: int = 0
    STRUCT: ClassVar[tuple[str, ...]] = (
        "images", "down", "across", "groups", "wide", "tall", "chunk_words", "pixel_bytes",
        "changes_places", "turns", "stage_words", "stages", "pictures", "planes_y", "planes_x",
        "rows", "pitch", "slots", "blocks_y", "blocks_x", "column_blocks", "chunks", "last_steps",
        "height", "width", "words", "own_words", "sections", "taps_y", "taps_x", "stride_y",
        "stride_x", "top", "left", "result_y", "result_x", "result_words", "out_words",
        "out_pieces", "filters", "to", "to_panels", "rounds", "added", "eights", "line",
        "apart_y", "apart_x", "at_once", "out_at_once", "turned", "units", "columns", "own",
        "twice", "together", "taps_a_sum",
    )  # fmt: skip


def patches_program(plan: Patches) -> PatchesProgram:
    operation, arithmetic, window = plan.operation, plan.arithmetic, plan.operation.window
    name, words = operation.names[0], plan.parameter_words
    pool, before, after = pool_of(operation)
    filters = operation.result[0]
    (height, width), (result_y, result_x) = plan.source_sides, plan.result_sides
    tensor = plan if isinstance(plan, TensorPatches) else None
    without = plan if isinstance(plan, PlainPatches) else None
    return PatchesProgram(
        arithmetic=arithmetic,
        before=before,
        activations=after,
        pool=pool,
        bias=words[f"{name}.bias"],
        weights=words[f"{name}.weight"],
        threads=plan.threads,
        sharing=plan.sharing,
        registers=plan.registers,
        images=plan.images,
        down=plan.down,
        across=plan.across,
        groups=plan.groups,
        wide=plan.wide,
        tall=plan.tall,
        sums=plan.sums,
        chunk_words=plan.chunk_words,
        pixel_bytes=plan.pixel_bytes,
        changes_places=tensor is not None,
        turns=plan.turns,
        stage_words=plan.stage_words,
        stages=plan.stages,
        pictures=plan.pictures,
        planes_y=plan.planes[0],
        planes_x=plan.planes[1],
        rows=plan.rows,
        pitch=plan.pitch,
        slots=plan.slots,
        blocks_y=plan.blocks[0],
        blocks_x=plan.blocks[1],
        column_blocks=plan.column_blocks,
        chunks=plan.chunks,
        last_steps=plan.last_steps,
        height=height,
        width=width,
        words=plan.words,
        own_words=plan.own_words,
        sections=plan.sections,
        taps_y=plan.taps[0],
        taps_x=plan.taps[1],
        stride_y=window.stride[0],
        stride_x=window.stride[1],
        top=window.padding[0],
        left=window.padding[1],
        result_y=result_y,
        result_x=result_x,
        result_words=plan.result_words,
        out_words=arithmetic.words(filters),
        out_pieces=plan.result_words // PIECE,
        filters=filters,
        to=into(plain(arithmetic, operation.result), arithmetic, operation.only_sums).to,
        to_panels=plan.gives == "panels",
        rounds=plan.rounds,
        added=operation.added,
        eights=plan.eights,
        line=plan.line,
        apart_y=window.apart[0],
        apart_x=window.apart[1],
        at_once=plan.at_once,
        out_at_once=math.gcd(arithmetic.words(filters), PIECE),
        turned=tensor is not None and tensor.turned,
        units=tensor.units if tensor else 0,
        columns=tensor.columns if tensor else 0,
        own=without.own if without else 0,
        twice=without.twice if without else False,
        together=without.together if without else 0,
        taps_a_sum=TAPS_A_SUM if tensor else 0,
    )
