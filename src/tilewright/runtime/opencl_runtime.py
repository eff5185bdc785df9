"""What runs on an OpenCL device of any maker, through pyopencl.

Times are the device's own, from profiling events. Memory shared with the host (`managed`) is
fine-grained shared virtual memory: plain NumPy arrays that kernels can read and write.

Drivers differ in what they forgive. Nothing here relies on it: `tests/runtime/strict.py` insists on
all that the standard asks for.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, DeviceFault, GpuKernel, HostArray, Mark, opencl
from tilewright.runtime.arrays import Array
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Block, Grid, Source
from tilewright.runtime.opencl_programs import Built, built
from tilewright.runtime.pocl import is_pocl
from tilewright.runtime.recorder import Recorder
from tilewright.trace import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Cost,
    Event,
    Kind,
    calling,
)

# Launches that may wait in the queue: the host is not far ahead when it shows how far the work has
# come, or when it is interrupted.
QUEUED = 50


@cache
def _tell(notice: str) -> None:
    """Say something to the user, once."""
    print(f"tilewright: {notice}", file=sys.stderr)


@cache
def _handed_out(index: int) -> WeakValueDictionary[int, HostArray]:
    """The pinned arrays of a device that are in use, by their identity: OpenCL cannot be asked."""
    return WeakValueDictionary()


class OpenClRuntime(Recorder[Any]):
    recording_disturbs = True
    clock = "OpenCL's profiling events, and the host's clock around each call"

    def __init__(self, device: Device, managed: bool = False) -> None:
        if reason := opencl.missing(device):
            raise TilewrightError(f"device '{device}': {reason}")
        super().__init__()
        cl = self.cl = opencl.load()
        self.name = str(device)
        self.index = device.index
        self.device = opencl.devices()[self.index]
        self.managed = managed
        if managed and not opencl.shares_memory(self.device):
            raise TilewrightError(
                f"{self.device.name.strip()} shares no memory with the host (fine-grained SVM): "
                "--memory managed needs that; use resident, streamed or per-layer"
            )
        if is_pocl(self.device) and (notice := opencl.kept_kernels()):
            _tell(notice)
        self.limits = opencl.limits(self.device)
        # Bytes that a pointer into a buffer must be a multiple of: 128 on PoCL, 512 on NVIDIA's.
        self.alignment = max(1, self.device.mem_base_addr_align // 8)
        profiling = cl.command_queue_properties.PROFILING_ENABLE
        with self._in_words():
            self.context = opencl.context(self.index)
            with calling(self.trace, "clCreateCommandQueue"):
                self.kernels, self.sends, self.fetches = (
                    cl.CommandQueue(self.context, properties=profiling) for _ in range(3)
                )
        self.handed_out = _handed_out(self.index)
        self.queued = 0

    def describe(self) -> str:
        return f"{self.device.name.strip()}, {self.limits.processors} compute units"

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Buffer:
        kind = np.dtype(dtype)
        size = max(1, math.prod(shape) * kind.itemsize)
        if size > self.device.max_mem_alloc_size:
            raise TilewrightError(
                f"{self.name} allocates at most {self.device.max_mem_alloc_size:,} bytes at once, "
                f"and {size:,} are needed: use a smaller --batch, or --memory streamed"
            )
        try:
            if self.managed:
                with calling(self.trace, "clSVMAlloc"):
                    shared: HostArray = self.cl.fsvm_empty(self.context, shape, kind)
                    return shared
            with calling(self.trace, "clCreateBuffer"):
                memory = self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, size)
        except self.cl.Error as error:
            raise self._out_of_memory(size) from error
        return Array(self, memory, shape, kind)

    def over(self, array: HostArray) -> Buffer:
        """The host's own memory as a buffer: on a CPU, kernels read and write it where it is."""
        flags = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.USE_HOST_PTR
        with self._in_words():
            memory = self.cl.Buffer(self.context, flags, hostbuf=array)
        return Array(self, memory, array.shape, array.dtype)

    def upload(self, array: HostArray) -> Buffer:
        buffer = self.allocate(array.shape, array.dtype)
        self.write(buffer, array)
        return buffer

    def write(self, buffer: Buffer, array: HostArray) -> None:
        if self.managed:
            self._finish(self.kernels)  # whoever reads the old content must be done
            _shared(buffer)[:] = array
        elif array.size:
            self._copy_in(self.kernels, _own(buffer), np.ascontiguousarray(array), None, True)

    def download(self, buffer: Buffer) -> HostArray:
        if self.managed:
            self._finish(self.kernels)
            return np.array(_shared(buffer))
        held = _own(buffer)
        array = np.empty(held.shape, held.dtype)
        if array.size:
            self._copy_out(self.kernels, array, held, None, True)
        return array

    def copy(self, target: Array, source: Array) -> None:
        """Inside the device."""
        if not source.nbytes:
            return
        with self._call("clEnqueueCopyBuffer") as number:
            event = self.cl.enqueue_copy(
                self.kernels, target.memory, source.memory, byte_count=source.nbytes,
                src_offset=source.offset, dst_offset=target.offset,
            )  # fmt: skip
        if number:  # of interest to nobody but a profiler
            self._record(event, DEVICE_TO_DEVICE, source.nbytes, number=number)

    def compile(self, source: Source) -> GpuKernel:
        source.check(self.limits)
        with self._in_words(f"the OpenCL compiler, of {source.name}"):
            handle = built(self.index, source)
        constant = self.allocate((source.constant_floats,)) if source.constant_floats else None
        return GpuKernel(source.name, source.block, handle, constant)

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Buffer | int],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        constant = [] if kernel.constant is None else [kernel.constant]
        given = [self._aligned(a) if isinstance(a, Array) else a for a in (*arguments, *constant)]
        built = kernel.handle
        assert isinstance(built, Built)
        about = f"kernel {kernel.name}"
        with self._in_words(about):
            # A kernel does not keep its arguments alive, a queued launch does: until then, we do.
            kept = [self._argument(each) for each in given]
        with self._call("clSetKernelArg", about):
            built.kernel.set_args(*kept)
        items = tuple(blocks * threads for blocks, threads in zip(grid, kernel.block, strict=True))
        with self._call("clEnqueueNDRangeKernel", about) as number:
            event = self.cl.enqueue_nd_range_kernel(self.kernels, built.kernel, items, kernel.block)
        self._record(
            event, kernel.name, 0, "kernel", layers, number=number,
            grid=grid, block=kernel.block, cost=cost,
        )  # fmt: skip
        self.queued += 1
        if self.queued % QUEUED == 0:
            self._finish(self.kernels)
        for argument, aligned, written in zip(arguments, given, built.writes, strict=False):
            if aligned is not argument and written:
                self.copy(_own(argument), _own(aligned))

    def synchronise(self) -> None:
        """Wait for the device, then place its events on the host's clock."""
        for queue in (self.kernels, self.sends, self.fetches):
            self._finish(queue)
        trace = self.unsettled()
        if trace is None:
            return
        # The device's clock was read somewhere between these two moments of the host's, the marker
        # was over before the host knew, and nothing began before it was asked for.
        before = trace.now()
        with self._in_words():
            mark = self.cl.enqueue_marker(self.kernels)
            after = trace.now()
            mark.wait()
            offset = min(
                0.5 * (before + after) - 1e-9 * mark.profile.queued,
                trace.now() - 1e-9 * mark.profile.end,
            )
            self.settle(partial(self._times, offset))

    def _times(self, offset: float) -> list[tuple[float, float]]:
        """When all that is remembered was, with the device's clock so much behind the trace's."""
        stamps = [(event.profile.start, event.profile.end) for event, _ in self.pending]
        for (start, _), (_, asked) in zip(stamps, self.pending, strict=True):
            if asked.correlation:
                offset = max(offset, asked.start - 1e-9 * start)
        return [(1e-9 * start + offset, 1e-9 * end + offset) for start, end in stamps]

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        flags = self.cl.mem_flags.READ_WRITE | self.cl.mem_flags.ALLOC_HOST_PTR
        access: Any = self.cl.map_flags.READ | self.cl.map_flags.WRITE
        size = math.prod(shape) * np.dtype(dtype).itemsize
        try:
            # The array's base keeps the buffer, and gives it back when nobody has the array.
            buffer = self.cl.Buffer(self.context, flags, max(1, size))
            array, _ = self.cl.enqueue_map_buffer(
                self.kernels, buffer, access, 0, (max(1, size),), np.dtype(np.uint8)
            )
        except self.cl.Error as error:
            raise TilewrightError(
                f"{self.name} pins no {size:,} bytes of the host's memory ({_line(error)}): use "
                "fewer --images, or --memory resident"
            ) from error
        self.handed_out[id(array)] = array
        return np.asarray(array[:size].view(dtype).reshape(shape))

    def is_pinned(self, array: HostArray) -> bool:
        while isinstance(array.base, np.ndarray):
            array = array.base
        return self.handed_out.get(id(array)) is array

    def send(self, buffer: Buffer, array: HostArray, after: Mark | None) -> Mark:
        assert array.flags.c_contiguous  # a copy of it might not live until it is sent
        return self._copy_in(self.sends, _own(buffer), array, after, False)

    def fetch(self, array: HostArray, buffer: Buffer, after: Mark | None) -> Mark:
        return self._copy_out(self.fetches, array, _own(buffer), after, False)

    def mark(self) -> Mark:
        with self._call("clEnqueueMarkerWithWaitList"):
            event: Mark = self.cl.enqueue_marker(self.kernels)
            self.kernels.flush()
        return event

    def hold(self, mark: Mark) -> None:
        with self._call("clEnqueueBarrierWithWaitList"):
            self.cl.enqueue_barrier(self.kernels, wait_for=[mark])

    def wait(self, mark: Any) -> None:
        with self._call("clWaitForEvents"):
            mark.wait()

    def _call(self, name: str, about: str = "") -> _Driver:
        """A call of the driver that a profile shows."""
        return _Driver(self, calling(self.trace, name), about)

    def _in_words(self, about: str = "") -> _Driver:
        """Calls of the driver that no profile shows."""
        return _Driver(self, nullcontext(0), about)

    def _finish(self, queue: Any) -> None:
        with self._call("clFinish"):
            queue.finish()

    def _copy_in(
        self, queue: Any, buffer: Array, array: HostArray, after: Mark | None, wait: bool
    ) -> Mark:
        with self._call("clEnqueueWriteBuffer") as number:
            event: Mark = self.cl.enqueue_copy(
                queue, buffer.memory, array, dst_offset=buffer.offset,
                is_blocking=wait, wait_for=None if after is None else [after],
            )  # fmt: skip
            queue.flush()
        self._record(event, HOST_TO_DEVICE, array.nbytes, number=number, lane=self._lane(queue))
        return event

    def _copy_out(
        self, queue: Any, array: HostArray, buffer: Array, after: Mark | None, wait: bool
    ) -> Mark:
        with self._call("clEnqueueReadBuffer") as number:
            event: Mark = self.cl.enqueue_copy(
                queue, array, buffer.memory, src_offset=buffer.offset,
                is_blocking=wait, wait_for=None if after is None else [after],
            )  # fmt: skip
            queue.flush()
        self._record(event, DEVICE_TO_HOST, array.nbytes, number=number, lane=self._lane(queue))
        return event

    def _out_of_memory(self, size: int) -> TilewrightError:
        return TilewrightError(
            f"{self.name} has no {size:,} bytes of memory left: use a smaller --batch, or --memory "
            "streamed"
        )

    def _aligned(self, array: Array) -> Array:
        """The array itself, or a copy where OpenCL has no pointer to its first element.

        What starts elsewhere than on a multiple of some bytes, as a batch may inside a whole data
        set, is copied out, and back again if the kernel may have written to it.
        """
        if array.offset % self.alignment == 0:
            return array
        aligned = _own(self.allocate(array.shape, array.dtype))
        self.copy(aligned, array)
        return aligned

    def _argument(self, given: Buffer | int) -> Any:
        if isinstance(given, int):
            return np.int32(given)
        if isinstance(given, np.ndarray):
            return self.cl.SVM(given)
        argument = _own(given)
        if not argument.offset or not argument.nbytes:
            return argument.memory
        return argument.memory.get_sub_region(argument.offset, argument.nbytes)

    def _lane(self, queue: Any) -> str:
        return "queue" if queue is self.kernels else "queue of copies"

    def _record(
        self, event: Mark, name: str, size: int, kind: Kind = "copy", layers: tuple[str, ...] = (),
        number: int = 0, lane: str = "queue",
        grid: Grid | None = None, block: Block | None = None, cost: Cost | None = None,
    ) -> None:  # fmt: skip
        """Remember what was queued, as begun when it was asked for until its times are known."""
        if self.trace is None:
            return
        asked = self.trace.called
        self.remember(
            event, Event(kind, name, asked, asked, layers, size, grid, block, cost, lane, number)
        )


class _Driver:
    """Around calls of the driver: what it refuses is an error in one line that says of what."""

    def __init__(
        self, runtime: OpenClRuntime, recorded: AbstractContextManager[int], about: str
    ) -> None:
        self.runtime, self.recorded, self.about = runtime, recorded, about

    def __enter__(self) -> int:
        return self.recorded.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.recorded.__exit__(kind, error, where)
        cl = self.runtime.cl
        if not isinstance(error, cl.Error):
            return
        said = f"{self.runtime.name} ({self.runtime.device.name.strip()})"
        if isinstance(error, cl.MemoryError):  # some drivers allocate when memory is first used
            raise TilewrightError(
                f"{said} has no memory left: use a smaller --batch, or --memory streamed"
            ) from error
        about = f", {self.about}" if self.about else ""
        raise DeviceFault(f"{said}{about}: {_line(error)}") from error


def _own(buffer: Buffer | int) -> Array:
    """A buffer of the device's own memory."""
    assert isinstance(buffer, Array), type(buffer)
    return buffer


def _shared(buffer: Buffer) -> HostArray:
    """A buffer in memory shared with the host."""
    assert isinstance(buffer, np.ndarray), type(buffer)
    return buffer


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
