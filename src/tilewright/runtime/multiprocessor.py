"""What a multiprocessor of each NVIDIA architecture holds and does, and how full a kernel makes it.

Limits are from the CUDA programming guide, "Technical Specifications per Compute Capability";
occupancy follows `cuda_occupancy.h` of the CUDA toolkit. Needs no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.nvrtc import Compiled

WARP = 32
REGISTERS = 64 * 1024  # of a multiprocessor, in four parts that each hold whole warps
PARTS = 4
REGISTER_UNIT = 256  # registers are given to a warp in such portions


@dataclass(frozen=True)
class Multiprocessor:
    """Most threads and blocks at a time, shared memory, and lanes that work in each cycle.

    A block takes `reserved_bytes` of shared memory for the system, and portions of `shared_unit`.
    """

    threads: int
    blocks: int
    shared_bytes: int
    fma_lanes: int  # multiply-adds of float32
    load_lanes: int  # values of 4 bytes from shared memory or the first cache
    index_lanes: int = 64  # additions, shifts, comparisons and products of whole numbers
    reserved_bytes: int = 1024
    shared_unit: int = 128


MULTIPROCESSORS = {
    75: Multiprocessor(1024, 16, 64 * 1024, 64, 16, reserved_bytes=0, shared_unit=256),
    80: Multiprocessor(2048, 32, 164 * 1024, 64, 32),
    86: Multiprocessor(1536, 16, 100 * 1024, 128, 32),
    89: Multiprocessor(1536, 24, 100 * 1024, 128, 32),
    90: Multiprocessor(2048, 32, 228 * 1024, 128, 32),
    100: Multiprocessor(2048, 32, 228 * 1024, 128, 32, index_lanes=128),
    120: Multiprocessor(1536, 24, 100 * 1024, 128, 32, index_lanes=128),
}


def architecture(capability: int) -> str:
    """What the compiler calls a GPU, with the instructions that no later one has."""
    return f"sm_{capability}" + ("a" if capability == 90 else "")


@dataclass(frozen=True)
class Gpu:
    """A GPU's size and rates: all that limits of throughput follow from."""

    name: str
    capability: int  # the architecture's number, as in sm_90
    processors: int
    hertz: float
    bytes_per_second: float  # of its memory

    @property
    def architecture(self) -> str:
        return architecture(self.capability)

    @property
    def multiprocessor(self) -> Multiprocessor:
        """Of this architecture, or the nearest older one that is known."""
        known = [number for number in MULTIPROCESSORS if number <= self.capability]
        return MULTIPROCESSORS[max(known, default=min(MULTIPROCESSORS))]


# Assumed where no CUDA GPU is.
REFERENCE = Gpu("NVIDIA H200", 90, 132, 1.98e9, 4.8e12)


@dataclass(frozen=True)
class Occupancy:
    """How many blocks of a kernel a multiprocessor holds, and what there is too little of."""

    blocks: int
    share: float  # of the threads it could hold
    limit: str


def occupancy(threads: int, compiled: Compiled, held: Multiprocessor) -> Occupancy:
    """Of a kernel with blocks of so many threads."""
    warps = _up(threads, WARP) // WARP
    warp_registers = _up(compiled.registers * WARP, REGISTER_UNIT)
    shared = _up(compiled.shared_bytes + held.reserved_bytes, held.shared_unit)
    fitting = {
        "threads": held.threads // WARP // warps,
        "registers": REGISTERS // PARTS // warp_registers * PARTS // warps,
        "blocks": held.blocks,
    }
    if compiled.shared_bytes:
        fitting["shared memory"] = held.shared_bytes // shared
    limit = min(fitting, key=lambda resource: fitting[resource])
    return Occupancy(fitting[limit], fitting[limit] * warps * WARP / held.threads, limit)


def _up(value: int, unit: int) -> int:
    """Rounded up to whole units."""
    return -(-value // unit) * unit
