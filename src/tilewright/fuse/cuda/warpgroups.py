"""Sums that four warps compute together, with Hopper's own instruction (wgmma).

Each warp has 16 rows of the picture in its registers, as for `mma`; weights are not loaded, but
read from shared memory by the tensor cores, once for all four. An instruction for 24 filters takes
13 cycles of a multiprocessor where 12 of `mma` take 18, and 16 for 32 filters where those take 24;
with 16 filters nothing is gained (H200, 2026-11-16). Rows are loaded before it and waited for after
it, so that other groups must have work meanwhile.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.limits import lane_registers
from tilewright.fuse.cuda.operations import Geometry
from tilewright.fuse.cuda.pictures import PAIRED, conflicts
from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.fuse.cuda.sums import TILE, Shares, pairs_of, runs_of, source_picture

WARPS = 4  # that work together
# Columns of 8 filters from which on it was faster, and warps of a block; rows of sums, by values of
# a word: in TF32 weights take twice the reads, which it saves.
LEAST_COLUMNS, LEAST_WARPS = 3, 12
LEAST_ROWS = {2: 4, 1: 2}
# Rows of sums that are computed between loading rows of the picture and waiting.
ROWS_AT_A_TIME = 4
# Products of a step, with a row of taps each, that keep tensor cores busy while rows are loaded.
LEAST_PRODUCTS = {2: 45, 1: 30}
# What a turn of a read counts for beside a cycle of tensor cores: other groups fill some of it.
READ = 0.5
# Sums that are computed, of those that are needed: more take longer than `mma` does.
MOST_SUMS = 1.25


def with_warpgroups(plan: Stack, generation: Generation) -> Stack:
    """The same plan, with sums by warpgroups where they can be, and where they gain."""
    if not can_be_wide(plan.arithmetic, generation, plan.warps, plan.groups):
        return plan
    phases = tuple(
        replace(phase, warpgroup=ROWS_AT_A_TIME) if _gains(plan, phase, generation) else phase
        for phase in plan.phases
    )
    return replace(plan, phases=phases) if any(each.warpgroup for each in phases) else plan


def _gains(plan: Stack, phase: Phase, generation: Generation) -> bool:
    shares, window = phase.shares, phase.operation.window
    if shares is None or not phase.shared:
        return False
    if shares.wide:
        return True
    _, _, half = runs_of(shares, phase.source)
    return (
        shares.columns >= LEAST_COLUMNS
        and shares.rows >= LEAST_ROWS[plan.arithmetic.per_word]
        and window.stride[0] == 1
        and half == 0
        # All four have a unit at any time, and the same filters.
        and shares.units % plan.warps == 0
        and (shares.splits == 1 or shares.tile_count % WARPS == 0)
        and _registers(shares, generation) <= lane_registers(plan.warps * plan.groups)
    )


def can_be_wide(arithmetic: Arithmetic, generation: Generation, warps: int, groups: int) -> bool:
    """Whether there are such sums, and other groups of four warps that work while one waits."""
    enough = warps % WARPS == 0 and warps * groups >= LEAST_WARPS
    return generation.warpgroups and arithmetic.from_shared and enough


def _registers(shares: Shares, generation: Generation) -> int:
    """Of a lane: sums, and rows of the picture that are computed with at a time."""
    rows = min(shares.rows, ROWS_AT_A_TIME) - 1 + shares.geometry.window.taps[0]
    return 4 * shares.rows * shares.columns + 4 * rows + generation.other_registers


@lru_cache(maxsize=20_000)
def wide_share(
    geometry: Geometry, arithmetic: Arithmetic, generation: Generation, warps: int, registers: int
) -> Shares | None:
    """The best units that are made for warpgroups, in whole steps; None if there are none."""
    columns = -(-geometry.summed[0] // 8)
    least = 2 if geometry.pool else 1
    if columns < LEAST_COLUMNS or geometry.window.stride[0] > 1:
        return None
    found: list[Shares] = []
    for rows in range(least, geometry.summed[1] + 1, least):
        one = Shares(geometry, arithmetic, rows, columns, warps)
        if _registers(one, generation) > registers:
            break
        products = rows * columns * geometry.window.taps[0]
        high, across = one.needed
        if (
            rows <= high
            and products >= LEAST_PRODUCTS[arithmetic.per_word]
            and one.tile_count * TILE * rows <= MOST_SUMS * high * across
        ):
            found += [one] if geometry.pool else [one, replace(one, in_turn=True)]
    return min(found, key=lambda one: _cycles(one, generation), default=None)


def _cycles(shares: Shares, generation: Generation) -> float:
    """About what units take: an instruction, four for each column and one more for four warps; and
    reads of shared memory, with the turns that each takes."""
    source = source_picture(shares, False, generation.unaligned)
    count, full, _ = runs_of(shares, source)
    instructions = shares.rows * shares.geometry.window.taps[0] * (shares.columns + 0.25)
    turns = 1 + conflicts(shares.arithmetic, source, shares.reads, shares.wide > 0)
    if pairs_of(shares, source):
        turns *= PAIRED
    reads = 4 * shares.input_rows * turns
    return shares.units * count * full * (instructions + READ * reads)
