"""What this CPU can do at best: multiply-adds on registers alone, on all cores at once."""

from __future__ import annotations

import ctypes
import time

import numpy as np

from tilewright.environment import cpu_cores
from tilewright.fuse.cpu.build import Machine, compile_code, host
from tilewright.fuse.cpu.code import Function
from tilewright.fuse.cpu.tiles import Target
from tilewright.threads import share

# Enough independent sums to keep every unit busy, few enough for the registers.
SUMS = 12
# Rounds for every core that takes part, up to 32: threads begin one after the other, and the more
# there are the longer each must run, or most of them wait. (With as many for 16 cores as for two,
# these seemed to do 1,690 GFLOP/s where `fused` did 2,050; Xeon with AVX-512, 2026-11-16.)
ROUNDS = 1_000_000
SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)


class Peak:
    """A short loop of nothing but multiply-adds; `best` is the most FLOP a second it has seen."""

    def __init__(self, on: Machine | None = None) -> None:
        machine = on or host()
        self.lanes, self.cores, self.best = machine.target.lanes, cpu_cores(), 0.0
        self.rounds = ROUNDS * min(max(2, self.cores), 32)
        self.engine = compile_code(_code(machine.target), machine)
        self.run = SIGNATURE(self.engine.get_function_address("peak"))
        self.buffers = [np.zeros(64, np.float32) for _ in range(self.cores)]

    def measure(self) -> float:
        """Run the loop once, some milliseconds, and return the best so far."""
        start = time.perf_counter()
        share(self._work, self.cores, self.cores)
        seconds = time.perf_counter() - start
        flop = 2.0 * self.lanes * SUMS * self.rounds * self.cores
        self.best = max(self.best, flop / seconds)
        return self.best

    def _work(self, first: int, last: int) -> None:
        for core in range(first, last):
            place = self.buffers[core].ctypes.data
            self.run(place + -place % 64, self.rounds)


def _code(target: Target) -> str:
    f = Function("void @peak", ("ptr %out", "i64 %rounds"), target, "nounwind")
    factor = f.load("%out")
    with f.carried_loop(0, "%rounds", [f.constant(0)] * SUMS) as (_, current, sums):
        current[:] = [f.fma(factor, factor, value) for value in current]
    total = sums[0]
    for value in sums[1:]:
        total = f.binary("fadd", total, value)
    f.store(total, "%out")
    return f.text()
