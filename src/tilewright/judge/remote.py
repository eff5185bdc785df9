"""A runtime whose device is driven by a worker: the same contract, so that all else is unchanged.

Launches, copies in and inside are sent without waiting; what went wrong with them is raised where
the device is waited for. Times are the judge's own, around a launch and its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from tilewright.errors import TilewrightError
from tilewright.judge.allowance import Allowance
from tilewright.judge.office import Memory, Office
from tilewright.judge.protocol import Copy, Launch, Piece
from tilewright.model.layers import Shape
from tilewright.rungs.rung import Rung
from tilewright.runtime import Buffer, GpuKernel, HostArray, Mark
from tilewright.runtime.arrays import Array
from tilewright.runtime.complaints import KernelDoesNotCompile
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Grid, Source
from tilewright.trace import DEVICE_TO_HOST, HOST_TO_DEVICE, Cost, Event, Kind, Trace


def isolate(rung: Rung, allowance: Allowance | None, kept: Path | None, trust: bool) -> Rung:
    """The rung with every runtime it opens in one worker; a new one where that was stopped."""
    if rung.convolutions is None:
        raise TilewrightError(
            f"rung {rung.name!r} cannot be isolated: it launches no plain kernels"
        )
    offices: dict[Device, Office] = {}

    def open_runtime(device: Device, memory: str) -> RemoteRuntime:
        if memory == "managed":
            raise TilewrightError("a worker shares no memory with the host: no --memory managed")
        if device not in offices or offices[device].connection.reason is not None:
            offices[device] = Office(device, allowance or Allowance(), kept, trust)
        return RemoteRuntime(device, offices[device])

    memories = tuple(each for each in rung.memories if each != "managed")
    return replace(rung, open_runtime=open_runtime, memories=memories)


class RemoteRuntime:
    recording_disturbs = True
    clock = "the judge's clock around each launch and its end"
    managed = False

    def __init__(self, device: Device, office: Office) -> None:
        self.name, self.office = str(device), office
        ready = office.connection.ready
        self.limits, self.description = ready.limits, ready.description
        self.trace: Trace | None = None

    def describe(self) -> str:
        return self.description

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Buffer:
        kind = np.dtype(dtype)
        memory = self.office.memory(math.prod(shape) * kind.itemsize)
        return Array(self, memory, shape, kind)

    def upload(self, array: HostArray) -> Buffer:
        buffer = self.allocate(array.shape, array.dtype)
        self.write(buffer, array)
        return buffer

    def write(self, buffer: Buffer, array: HostArray) -> None:
        held = _own(buffer)
        assert array.shape == held.shape and array.dtype == held.dtype
        if array.size:
            start = self._start()
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            self.office.write(_piece(held), data)
            self._record(start, HOST_TO_DEVICE, array.nbytes)

    def download(self, buffer: Buffer) -> HostArray:
        held = _own(buffer)
        start = self._start()
        data = self.office.read(_piece(held))
        self._record(start, DEVICE_TO_HOST, data.nbytes)
        return data.view(held.dtype).reshape(held.shape)

    def copy(self, target: Array, source: Array) -> None:
        if source.nbytes:
            self.office.connection.tell(Copy(_piece(target), _piece(source)))

    def compile(self, source: Source) -> GpuKernel:
        source.check(self.limits)
        kernel, constant = self.office.number(), self.office.number()
        try:
            self.office.compile(kernel, constant, source)
        except KernelDoesNotCompile as error:  # at lines of a file that the judge has itself
            assert source.file is not None
            raise KernelDoesNotCompile(
                source.file, source.text, error.messages, source.parts
            ) from error
        floats = source.constant_floats
        memory = Memory(constant, 4 * floats)
        array = Array(self, memory, (floats,), np.dtype(np.float32)) if floats else None
        return GpuKernel(source.name, source.block, kernel, array)

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Buffer | int],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        assert isinstance(kernel.handle, int)
        given = [int(a) if isinstance(a, int) else _piece(_own(a)) for a in arguments]
        start = self._start()
        on = f" on {' and '.join(layers)}" if layers else ""
        self.office.launch(Launch(kernel.handle, grid, given), f"{kernel.name}{on}")
        self._record(start, kernel.name, 0, layers, grid, kernel.block, cost)

    def synchronise(self) -> None:
        self.office.wait()

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        return np.empty(shape, dtype)

    def is_pinned(self, array: HostArray) -> bool:
        return True  # everything goes through the window

    def send(self, buffer: Buffer, array: HostArray, after: Mark | None) -> Mark:
        self.write(buffer, array)
        return self.mark()

    def fetch(self, array: HostArray, buffer: Buffer, after: Mark | None) -> Mark:
        array[:] = self.download(buffer)
        return self.mark()

    def mark(self) -> Mark:
        """Requests are done in their order: nobody has to wait for another lane."""
        return self

    def hold(self, mark: Mark) -> None: ...

    def wait(self, mark: Mark) -> None:
        self.office.wait()

    def _start(self) -> float:
        """Of what is recorded, which is then alone."""
        if self.trace is None:
            return 0.0
        self.office.wait()
        return self.trace.now()

    def _record(
        self, start: float, name: str, size: int, layers: tuple[str, ...] = (),
        grid: Grid | None = None, block: Grid | None = None, cost: Cost | None = None,
    ) -> None:  # fmt: skip
        if self.trace is None:
            return
        self.office.wait()
        kind: Kind = "kernel" if grid else "copy"
        inside = layers or self.trace.inside
        self.trace.add(Event(kind, name, start, self.trace.now(), inside, size, grid, block, cost))


def _own(buffer: Buffer) -> Array:
    assert isinstance(buffer, Array), type(buffer)
    return buffer


def _piece(array: Array) -> Piece:
    memory: Memory = array.memory
    assert array.offset + array.nbytes <= memory.size
    return Piece(memory.number, array.offset, array.nbytes)
