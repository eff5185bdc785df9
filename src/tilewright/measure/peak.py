"""What a device can do at best, measured: multiply-adds on registers alone, and bytes moved.

Each is the best of a few tries.
"""

from __future__ import annotations

import time

import numpy as np

from tilewright.environment import cpu_cores, memory_bytes
from tilewright.rungs.gpu.design import BLOCK_THREADS, source, tiles
from tilewright.rungs.gpu.prepare import missing, open_runtime
from tilewright.runtime import GpuRuntime
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Grid, Source
from tilewright.threads import share
from tilewright.trace import Trace

# A try takes a CPU some milliseconds: among many, one is undisturbed also on a busy machine.
REPEATS, CPU_REPEATS = 5, 25
# Independent sums of a thread, enough to keep its unit busy and few enough for 16 registers, and
# multiply-adds of each; blocks for every processor, enough to make a millisecond on a CPU.
SUMS, ROUNDS, BLOCKS_EACH = 8, 128, 256
# Bytes that are copied: more than caches hold, and a small part of the memory.
MOVED_BYTES, MOVED_SHARE = 512 * 2**20, 1 / 32


def measured_peak(device: Device, precision: str = "fp32") -> float | None:
    """FLOP a second in an arithmetic; None where nothing of ours can be run."""
    if precision != "fp32":
        from tilewright.fuse.cuda.peak import tensor_peak

        return tensor_peak(device, precision)
    if not device.is_gpu:
        from tilewright.fuse.cpu.peak import Peak

        peak = Peak()
        return max(peak.measure() for _ in range(CPU_REPEATS))
    if missing(device):
        return None
    runtime = open_runtime(device, "resident")
    constants = {"SUMS": SUMS, "ROUNDS": ROUNDS}
    blocks = BLOCKS_EACH * runtime.limits.processors
    values = np.full(blocks * BLOCK_THREADS, 0.5, np.float32)
    flop = 2.0 * ROUNDS * SUMS * blocks * BLOCK_THREADS
    kernel = source("peak", "peak.cl", (BLOCK_THREADS, 1, 1), constants)
    return flop / _best_seconds(runtime, kernel, (blocks, 1, 1), values)


def measured_bandwidth(device: Device) -> float | None:
    """Bytes a second, read and written, by copying; None where nothing of ours can be run."""
    if not device.is_gpu:
        return _cpu_bandwidth()
    if missing(device):
        return None
    runtime = open_runtime(device, "resident")
    each = int(min(MOVED_BYTES, MOVED_SHARE * runtime.limits.memory_bytes)) // 32 * 16
    blocks = tiles(each // 16, BLOCK_THREADS)
    # The second half is copied over the first, four values a thread.
    values = np.zeros(2 * blocks * BLOCK_THREADS * 4, np.float32)
    constants = {"FROM": values.size // 2}
    kernel = source("bandwidth", "bandwidth.cl", (BLOCK_THREADS, 1, 1), constants)
    return values.nbytes / _best_seconds(runtime, kernel, (blocks, 1, 1), values)


def _best_seconds(
    runtime: GpuRuntime, kernel: Source, grid: Grid, values: np.typing.NDArray[np.float32]
) -> float:
    """The shortest of a few launches on some values."""
    compiled, given = runtime.compile(kernel), runtime.upload(values)
    trace = runtime.trace = Trace()
    for _ in range(REPEATS):
        runtime.enqueue(compiled, grid, (given,), ())
    runtime.synchronise()
    return min(event.seconds for event in trace.of("kernel"))


def _cpu_bandwidth() -> float:
    size = int(min(MOVED_BYTES, MOVED_SHARE * memory_bytes())) // 8
    there, here = np.zeros(size, np.float32), np.ones(size, np.float32)

    def copy(first: int, last: int) -> None:
        np.copyto(there[first:last], here[first:last])

    best = float("inf")
    for _ in range(REPEATS + 1):  # the first touches the pages
        start = time.perf_counter()
        share(copy, size, cpu_cores())
        best = min(best, time.perf_counter() - start)
    return (there.nbytes + here.nbytes) / best
