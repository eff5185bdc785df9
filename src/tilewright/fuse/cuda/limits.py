"""What a multiprocessor gives a kernel that has it for its own."""

from __future__ import annotations

from tilewright.runtime.dialect import DoesNotFit
from tilewright.runtime.multiprocessor import PARTS, REGISTERS, WARP

# Shared memory that a block may have: all that a multiprocessor of these architectures has, less
# what the system keeps of it.
SHARED_BYTES = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024, 120: 99 * 1024}


def shared_bytes(capability: int) -> int:
    known = [number for number in SHARED_BYTES if number <= capability]
    if not known:
        raise DoesNotFit(
            f"sm_{capability} has no tensor cores that add in float32: sm_80 is needed"
        )
    return SHARED_BYTES[max(known)]


def lane_registers(warps: int) -> int:
    """Registers that a lane may have in a block of so many warps, alone on its multiprocessor."""
    in_a_part = -(-warps // PARTS)
    return min(255, REGISTERS // PARTS // (WARP * in_a_part) // 8 * 8)
