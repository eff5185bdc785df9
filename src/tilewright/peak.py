"""What a device can do at best, measured: float32 multiply-adds on registers alone."""

from __future__ import annotations

import numpy as np

from tilewright.ladder.gpu.design import BLOCK_THREADS, source
from tilewright.ladder.gpu.prepare import missing, open_runtime
from tilewright.trace import Trace

REPEATS = 5
# Independent sums of a thread, enough to keep its unit busy and few enough for 16 registers, and
# multiply-adds of each; blocks for every processor, enough to make a millisecond on a CPU.
SUMS, ROUNDS, BLOCKS_EACH = 8, 128, 256


def measured_peak(device: str) -> float | None:
    """FLOP a second, the best of a few tries; None where nothing of ours can be run."""
    if device == "cpu":
        from tilewright.fuse.cpu.peak import Peak

        peak = Peak()
        return max(peak.measure() for _ in range(REPEATS))
    if missing(device):
        return None
    runtime = open_runtime(device, "resident")
    constants = {"SUMS": SUMS, "ROUNDS": ROUNDS}
    kernel = runtime.compile(source("peak", "peak.cl", (BLOCK_THREADS, 1, 1), constants))
    blocks = BLOCKS_EACH * runtime.limits.processors
    values = runtime.upload(np.full(blocks * BLOCK_THREADS, 0.5, np.float32))
    trace = runtime.trace = Trace()
    for _ in range(REPEATS):
        runtime.enqueue(kernel, (blocks, 1, 1), (values,), ())
    runtime.synchronise()
    flop = 2.0 * ROUNDS * SUMS * blocks * BLOCK_THREADS
    return flop / min(event.seconds for event in trace.of("kernel"))
