"""What a whole-network kernel is made of: where the network was cut, who computes what, how full
the tensor cores' instructions are, and what shared memory and registers hold. Nothing is run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.fuse.cuda.cut import Kernel, sources
from tilewright.fuse.cuda.dense import TILE, Dense
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.panels import PIECE, Panels
from tilewright.fuse.cuda.panels_ways import Many
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.patches import PATCH, Patches
from tilewright.fuse.cuda.pictures import conflicts
from tilewright.fuse.cuda.run import kernel_name, kernel_text
from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.fuse.cuda.sums import reads_of
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.model.network import Stages
from tilewright.runtime import nvrtc
from tilewright.runtime.nvrtc import Compiled


@dataclass(frozen=True)
class Share:
    """An operation's part of a kernel."""

    operation: Operation
    unit: str  # what a warp takes at a time
    units: int  # of an image
    used: float | None = None  # share of the multiply-adds issued that are the network's
    turns: float | None = None  # that a read of 8 rows from shared memory takes
    weights: str = ""  # where they lie


@dataclass(frozen=True)
class Facts:
    """A kernel; what only the compiler knows is None where there is none."""

    name: str
    layers: tuple[str, ...]
    arrangement: str
    memory: str
    shares: tuple[Share, ...]
    flops: int  # of an image
    compiled: Compiled | None


def explain(
    kernels: list[Kernel], stages: Stages, rung: str, precision: str, architecture: str
) -> list[Facts]:
    """All kernels of consecutive layers."""
    flops = {stage.name: stage.flops for stage in stages}
    found = []
    read = sources(kernels, "uint8" if stages[0].kind == "input" else "float32")
    for index, (plan, source) in enumerate(zip(kernels, read, strict=True)):
        name = kernel_name(rung, precision, plan, len(kernels) == 1)
        compiled = None
        if nvrtc.missing() is None:
            text = kernel_text(plan, name, stages[0].layer, source)
            compiled = nvrtc.compile_cubin(name, text, architecture)
        first = ("input",) if index == 0 and stages[0].kind == "input" else ()
        arrangement, memory, shares = _described(plan)
        work = sum(flops[layer] for layer in plan.names)
        layers = (*first, *plan.names)
        found.append(Facts(name, layers, arrangement, memory, shares, work, compiled))
    return found


def _described(plan: Kernel) -> tuple[str, str, tuple[Share, ...]]:
    if isinstance(plan, Panels):
        return _panels(plan)
    if isinstance(plan, Tiles):
        return _tiles(plan)
    if isinstance(plan, Patches):
        return _patches(plan)
    if isinstance(plan, Passing):
        return _passing(plan)
    return _dense(plan) if isinstance(plan, Dense) else _stack(plan)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _stack(plan: Stack) -> tuple[str, str, tuple[Share, ...]]:
    what = "an image each"
    if plan.strip:
        what = f"a strip of an image each, {len(plan.strip.starts)} strips an image"
    arrangement = (
        f"a block a multiprocessor, {plan.groups} x {plan.warps} warps: "
        f"{_count(plan.groups, 'group')}, {what}, from input to result"
    )
    weights = 4 * plan.shared_words
    memory = (
        f"{plan.shared_bytes:,} bytes shared: {weights:,} of weights, "
        f"{4 * plan.group_words:,} of activations a group"
    )
    return arrangement, memory, tuple(_phase(plan, phase) for phase in plan.phases)


def _phase(plan: Stack, phase: Phase) -> Share:
    operation = phase.operation
    # Of several images, as far as there are so many.
    images = plan.held if phase in plan.phases[-2:] else 1
    if phase.shares is None:
        done = "a warp, an image" if images > 1 else "a warp, all of it"
        return Share(operation, done if operation.kind == "softmax" else "two values a thread", 1)
    shares = phase.shares
    channels, _, _ = operation.source
    taps_y, taps_x = operation.window.taps
    words = plan.arithmetic.step * phase.steps
    filters = 8 * shares.columns
    sums = shares.units * shares.rows * 16 * 8 * shares.full_columns
    issued = sums * taps_y * words * plan.arithmetic.per_word
    _, out_y, out_x = operation.summed
    parts = len(plan.strip.starts) if plan.strip else 1
    if plan.strip:
        out_y = operation.stages[0].output_shape[1]  # strips do some rows twice
    useful = shares.filters * out_y * out_x * channels * taps_y * taps_x / parts
    if operation.folded:  # some weights are zeros
        useful = operation.stages[0].flops / 2
    unit = f"16 columns x {_count(shares.rows, 'row')}, {filters} filters"
    if images > 1:
        unit, useful = f"{images} images, {filters} filters", images * useful
    reads = reads_of(shares, phase.source)
    turns = 1 + conflicts(plan.arithmetic, phase.source, reads, shares.wide > 0)
    where = "shared memory" if phase.shared else "caches"
    return Share(operation, unit, shares.units * parts, useful / issued, turns, where)


def _dense(plan: Dense) -> tuple[str, str, tuple[Share, ...]]:
    arrangement = (
        f"a block for {plan.images} images, {plan.warps} warps; blocks share sums where images "
        "are few"
    )
    memory = f"{plan.shared_bytes:,} bytes shared: features and weights pass through in chunks"
    shares = []
    for index, layer in enumerate(plan.layers):
        tiles = plan.all_columns(index)
        useful = layer.weights
        depth = plan.words if index == 0 else plan.steps(index) * plan.arithmetic.step
        issued = depth * plan.arithmetic.per_word * 8 * tiles
        columns = plan.columns if index == 0 else 1
        more = plan.more if index == 0 else 1
        unit = f"{TILE * more} images, {8 * columns} outputs"
        shares.append(Share(layer, unit, tiles // columns, useful / issued, weights="caches"))
    if plan.softmax:
        shares.append(Share(plan.softmax, "a warp, an image", 1))
    return arrangement, memory, tuple(shares)


def _tiles(plan: Tiles) -> tuple[str, str, tuple[Share, ...]]:
    rows, filters = plan.rows, 8 * plan.block_columns
    arrangement = (
        f"a block for {rows} positions and {filters} filters, {plan.threads // 32} warps, "
        f"{plan.deep} of which share a sum; up to {plan.most_parts} blocks do"
    )
    memory = f"{plan.shared_bytes:,} bytes shared: positions and weights pass through in rounds"
    operation = plan.operation
    pool = 4 if operation.pool else 1
    units = plan.row_blocks(1) * plan.column_blocks * plan.threads // 32
    depth = plan.rounds * plan.round_words * plan.arithmetic.per_word
    issued = plan.row_blocks(1) * rows * plan.column_blocks * filters * depth
    useful = pool * plan.results * operation.weights
    unit = f"{16 * plan.tiles} positions, {8 * plan.columns} filters"
    shares = [Share(operation, unit, units, useful / issued, weights="caches")]
    if plan.softmax:
        shares.append(Share(plan.softmax, "a warp, an image", 1))
    return arrangement, memory, tuple(shares)


def _patches(plan: Patches) -> tuple[str, str, tuple[Share, ...]]:
    of = f"{_count(plan.images, 'image')}, " if plan.images > 1 else ""
    channels = plan.operation.source[0]
    seen = f" that see {channels // plan.sections} of {channels} channels" * (plan.sections > 1)
    down, across = plan.tall * plan.down, PATCH * plan.across
    area = f"{down * across} positions in a line" if plan.line else f"{down} x {across} positions"
    arrangement = (
        f"{_count(plan.sharing, 'block')} a multiprocessor, "
        f"for {of}{area} and {plan.wide} filters"
        f"{seen}; {4 * plan.groups} warps add up"
    )
    memory = f"{plan.shared_bytes:,} bytes shared: pictures and weights pass through in chunks"
    operation = plan.operation
    works = math.prod(plan.blocks) * plan.column_blocks
    depth = plan.step_words * plan.steps * plan.arithmetic.per_word
    # Images may lie beside each other in a patch.
    issued = works * PATCH * plan.tall * plan.patches * plan.wide * depth / plan.images
    useful = math.prod(operation.summed[1:]) * operation.weights
    positions, filters = plan.unit
    unit = f"{positions} positions, {filters} filters"
    sums = works * PATCH * plan.tall * plan.patches * plan.wide
    units = -(-sums // (positions * filters * plan.images))
    share = Share(operation, unit, units, useful / issued, weights="shared memory")
    return arrangement, memory, (share,)


def _passing(plan: Passing) -> tuple[str, str, tuple[Share, ...]]:
    arrangement = f"blocks of {plan.threads} threads, for whatever words come next"
    unit = f"32 x {_count(plan.width, 'word')}"
    units = -(-plan.result_words // (32 * plan.width))
    return arrangement, "no memory shared", (Share(plan.operation, unit, units),)


def _panels(plan: Panels) -> tuple[str, str, tuple[Share, ...]]:
    usual = plan.usual
    if isinstance(usual, Many):
        rows, columns = usual.wide, usual.outputs
        arrangement = (
            f"a block for {rows} images and {columns} outputs; of up to "
            f"{plan.most_few} images, for 16 and fewer outputs, whose warps divide the sums"
        )
        memory = f"{plan.shared_bytes:,} bytes shared: features and weights pass through in chunks"
        weights = "shared memory"
    else:
        rows, columns, weights = TILE, 8 * -(-plan.filters // 8), "caches"
        arrangement = f"a block for {rows} images, whose warps divide the sums"
        memory = f"{plan.shared_bytes:,} bytes shared: sums of all warps"
    depth = PIECE * plan.own_pieces * plan.arithmetic.per_word
    outputs = -(-plan.filters // columns)
    used = plan.layer.weights / (depth * columns * outputs)
    unit = f"{rows} images, {columns} outputs"
    shares = [Share(plan.layer, unit, outputs, used, weights=weights)]
    if plan.softmax:
        shares.append(Share(plan.softmax, "a warp, an image", 1))
    return arrangement, memory, tuple(shares)
