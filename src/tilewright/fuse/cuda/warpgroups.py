"""Sums that four warps compute together, with Hopper's own instruction (wgmma).

Each warp has 16 rows of the picture in its registers, as for `mma`; weights are not loaded, but
read from shared memory by the tensor cores, once for all four. An instruction for 24 filters takes
13 cycles of a multiprocessor where 12 of `mma` take 18, and 16 for 32 filters where those take 24;
with 16 filters nothing is gained (H200, 2026-11-16). Rows are loaded before it and waited for after
it, so that other groups must have work meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.limits import lane_registers
from tilewright.fuse.cuda.pictures import runs
from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.fuse.cuda.sums import reads_of

WARPS = 4  # that work together
# Columns of 8 filters from which on it was faster, and warps of a block; rows of sums, by values of
# a word: in TF32 weights take twice the reads, which it saves.
LEAST_COLUMNS, LEAST_WARPS = 3, 12
LEAST_ROWS = {2: 4, 1: 2}
# Rows of sums that are computed between loading rows of the picture and waiting.
ROWS_AT_A_TIME = 4


def with_warpgroups(plan: Stack, generation: Generation) -> Stack:
    """The same plan, with sums by warpgroups where they can be, and where they gain."""
    if not (generation.warpgroups and plan.arithmetic.tensor and plan.warps % WARPS == 0):
        return plan
    if plan.warps * plan.groups < LEAST_WARPS:
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
    _, _, half = runs(plan.arithmetic, phase.source, window.taps[1], reads_of(shares, phase.source))
    rows = ROWS_AT_A_TIME - 1 + window.taps[0]
    registers = 4 * shares.rows * shares.columns + 4 * rows + generation.other_registers
    return (
        shares.columns >= LEAST_COLUMNS
        and shares.rows >= LEAST_ROWS[plan.arithmetic.per_word]
        and window.stride[0] == 1
        and half == 0
        # All four have a unit at any time, and the same filters.
        and shares.units % plan.warps == 0
        and (shares.splits == 1 or shares.tile_count % WARPS == 0)
        and registers <= lane_registers(plan.warps * plan.groups)
    )
