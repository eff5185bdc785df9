"""What a multiprocessor gives a kernel that has it for its own, besides shared memory."""

from __future__ import annotations

from tilewright.runtime.multiprocessor import PARTS, REGISTERS, WARP


def lane_registers(warps: int) -> int:
    """Registers that a lane may have in a block of so many warps, alone on its multiprocessor."""
    in_a_part = -(-warps // PARTS)
    return min(255, REGISTERS // PARTS // (WARP * in_a_part) // 8 * 8)
