"""Where a convolution is timed: in a worker on this CPU, in a worker on a GPU, or, for a library
that is trusted, in this process. Each takes new input, and gives the time and the output.

The clock starts when the input lies where kernels read it and stops when the device has nothing
left to do. Outputs and scratch are poisoned before, and weights sent again. On this CPU the worker
stands still whenever the clock does: it sees the input when the clock runs, and what it has not
written by the end is not there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tilewright.execute import Program
from tilewright.judge.office import Office
from tilewright.judge.protocol import Flush, Record
from tilewright.judge.remote import RemoteRuntime
from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, Runtime
from tilewright.runtime.arrays import Array
from tilewright.trace import Trace
from tilewright.truth.guards import GuardingRuntime

Values = NDArray[np.float32]
POISON = np.uint32(0x7FC05A5A)  # a NaN that no arithmetic makes
CACHE = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
USUAL_CACHE, LARGEST_CACHE = 64 * 2**20, 512 * 2**20  # bytes; GPUs have less than the usual
TOGETHER = 10**6  # launches that are waited for at once


class Lane(Protocol):
    def call(self, x: Values, cold: bool) -> tuple[float, Values]:
        """Seconds, and the output; `cold`: with other data in the caches."""


class SharedLane:
    """A worker whose kernels run on this CPU, and whose buffers lie where the judge sees them."""

    def __init__(self, office: Office, program: Program, given: Shape, made: Shape) -> None:
        self.office, self.program, self.guards = office, program, _guards(program)
        self.x, self.x_seen = _shared(office, self.guards.inner, given)
        self.out, self.out_seen = _shared(office, self.guards.inner, made)
        program.create_outputs(given[0])

    def call(self, x: Values, cold: bool) -> tuple[float, Values]:
        office = self.office
        self.guards.poison()
        self.guards.restore()
        office.wait()
        office.connection.hush()
        self.x_seen[:] = x
        self.out_seen.view(np.uint32)[:] = POISON
        if cold:
            _fill_caches()
        office.queued = TOGETHER
        self.program.into(self.x, self.out)  # asked for when it is waited for
        start = time.perf_counter()
        office.wait()
        seconds = time.perf_counter() - start
        office.connection.hush()
        return seconds, self.out_seen.copy()


class DistantLane:
    """A worker that drives a GPU. No code of the kernel's is in it, and its clock is the GPU's."""

    def __init__(self, office: Office, program: Program, given: Shape, made: Shape) -> None:
        self.office, self.program, self.guards = office, program, _guards(program)
        self.runtime = self.guards.inner
        self.x, self.out = self.runtime.allocate(given), self.runtime.allocate(made)
        self.poison = np.full(made, POISON).view(np.float32)
        self.flush = _flusher(self.runtime)
        program.create_outputs(given[0])

    def call(self, x: Values, cold: bool) -> tuple[float, Values]:
        office, tell = self.office, self.office.connection.tell
        self.guards.poison()
        self.guards.restore()
        self.runtime.write(self.x, x)
        self.runtime.write(self.out, self.poison)
        if cold:
            if self.program.plan.device.kind == "cuda":
                tell(Flush())
            self.flush()
        office.wait()
        office.queued = TOGETHER
        tell(Record(on=True))
        self.program.into(self.x, self.out)
        start = time.perf_counter()
        seconds = office.wait()
        wall = time.perf_counter() - start
        tell(Record(on=False))
        output = self.runtime.download(self.out)
        # Work that the events do not show is still in the time until all was done.
        return (seconds if 0 < seconds <= wall else wall), np.asarray(output)


class LibraryLane:
    """Other people's kernels, in this process; on a GPU by its own clock."""

    def __init__(self, program: Program, given: Shape, made: Shape) -> None:
        self.program, self.runtime = program, program.runtime
        self.out = self.runtime.allocate(made)
        self.flush = _flusher(self.runtime)
        self.recorded = program.plan.device.kind == "cuda"
        program.create_outputs(given[0])

    def call(self, x: Values, cold: bool) -> tuple[float, Values]:
        given = self.runtime.upload(x)
        if cold:
            self.flush()
            _fill_caches()
        self.runtime.synchronise()
        trace = self.runtime.trace = Trace() if self.recorded else None
        start = time.perf_counter()
        self.program.into(given, self.out)
        self.runtime.synchronise()
        seconds = time.perf_counter() - start
        if trace is not None:
            seconds = sum(event.seconds for event in trace.of("kernel"))
        return seconds, np.array(self.runtime.download(self.out), np.float32)


def _guards(program: Program) -> GuardingRuntime:
    """What lies between a layer's kernels, and its weights."""
    found: object = program.runtime
    assert isinstance(found, GuardingRuntime)
    return found


def _shared(office: Office, runtime: Runtime, shape: Shape) -> tuple[Buffer, Values]:
    assert isinstance(runtime, RemoteRuntime)
    kind = np.dtype(np.float32)
    memory, seen = office.share(int(np.prod(shape)) * kind.itemsize)
    return Array(runtime, memory, shape, kind), seen.view(kind).reshape(shape)


def _fill_caches() -> None:
    """With what nobody needs."""
    other = np.empty(_cache_bytes() // 8, np.uint64)
    other.fill(1)
    other += 1


def _cache_bytes() -> int:
    """Of the largest cache, as Linux says it: 33792K."""
    try:
        return min(LARGEST_CACHE, max(USUAL_CACHE, 2 * 1024 * int(CACHE.read_text().strip("K\n"))))
    except (OSError, ValueError):
        return USUAL_CACHE


def _flusher(runtime: Runtime) -> Callable[[], None]:
    """Copies more than a GPU's caches hold from one place to another."""
    here, there = (runtime.allocate((4 * USUAL_CACHE // 4,)) for _ in range(2))

    def flush() -> None:
        here[:] = there

    return flush
