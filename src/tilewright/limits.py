"""What a kernel's time is limited by: one model, for what is foretold and for what was measured.

Each unit of a device has a rate, and a kernel has work for it. The unit that takes longest is the
limit, and its time the least the kernel can take: what waits for memory or at barriers, and what
the model leaves out, comes on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.runtime.multiprocessor import Gpu
from tilewright.trace import Cost

ARITHMETIC, LOADS, INDICES, MEMORY, FEW_BLOCKS = (
    *("arithmetic", "load units", "index arithmetic", "memory bandwidth", "too few blocks"),
)


@dataclass(frozen=True)
class Rates:
    """What a device does a second at best; what is None is not known, and limits nothing.

    `processors` share all of it but the memory.
    """

    flops: float | None
    bytes: float | None
    loads: float | None = None
    index_operations: float | None = None
    processors: int = 0


@dataclass(frozen=True)
class Limit:
    """The unit that takes longest, and its time; None where no rate is known."""

    name: str
    seconds: float


# A kernel that reaches less of its limit than this is not held up by it: it waits.
NEAR = 0.25
LEAST = 0.01  # what is less is not told in numbers
# Shorter launches are mostly their own beginning and end, whatever they compute.
SHORT_SECONDS = 5e-6


def held_up(bound: Limit, seconds: float, launches: int, on_gpu: bool) -> str:
    """What holds a kernel up that took so long, in words: its limit, if that is reached."""
    share = bound.seconds / seconds if seconds > 0 else 0.0
    if bound.name == MEMORY and share > 1:
        return "caches: more than memory gives"
    if share >= NEAR:
        return bound.name
    if on_gpu and launches and seconds / launches < SHORT_SECONDS:
        return "too short: mostly start and end"
    reached = f"{100 * share:.0f}" if share >= LEAST else f"<{100 * LEAST:.0f}"
    return f"latency: {reached} % of {bound.name}"


def rates_of(gpu: Gpu) -> Rates:
    """By its architecture, clock and memory."""
    cycles, lanes = gpu.hertz * gpu.processors, gpu.multiprocessor
    return Rates(
        2 * lanes.fma_lanes * cycles, gpu.bytes_per_second, lanes.load_lanes * cycles,
        lanes.index_lanes * cycles, gpu.processors,
    )  # fmt: skip


def limit(cost: Cost, rates: Rates, blocks: int | None = None) -> Limit | None:
    """Of a kernel launched with so many blocks: where they are few, some processors have none."""
    few = blocks is not None and blocks < rates.processors
    part = blocks / rates.processors if few and blocks else 1.0
    units = (
        (ARITHMETIC, cost.flops, rates.flops, part),
        (LOADS, cost.loads, rates.loads, part),
        (INDICES, cost.index_operations, rates.index_operations, part),
        (MEMORY, cost.bytes, rates.bytes, 1.0),
    )
    times = {name: amount / (rate * of) for name, amount, rate, of in units if rate}
    if not times:
        return None
    name = max(times, key=lambda unit: times[unit])
    return Limit(FEW_BLOCKS if few else name, times[name])
