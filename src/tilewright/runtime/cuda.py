"""NVIDIA GPUs, through CuPy: arrays, streams, events; kernels compiled by NVRTC.

Times are CUDA events' around each launch and copy, unless a trace brings a collector of its own.
Kernels run on the default stream; two more streams carry copies for the `streamed` memory plan.
Memory shared with the host (`managed`) is CUDA's unified memory, whose pages move between host and
device when they are touched.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import cache, lru_cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, GpuKernel, HostArray, Mark, Result, nvrtc
from tilewright.runtime.device import CUDA, Device
from tilewright.runtime.dialect import (
    USUAL_CONSTANT_BYTES,
    USUAL_SHARED_BYTES,
    Block,
    Grid,
    Limits,
    Source,
)
from tilewright.runtime.inventory import Found
from tilewright.runtime.multiprocessor import Gpu, architecture
from tilewright.runtime.recorder import EventRecorder, TimingEvent
from tilewright.runtime.staging import LEAST_BYTES, PIECE_BYTES, PIECES, Staging
from tilewright.trace import (
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    Cost,
    Kind,
    calling,
)

# What a call is named that was timed around CuPy's.
CALLS = {"kernel": "kernel launch (CuPy)", "copy": "copy (CuPy)"}
# cudaDevAttrClockRate and MemoryClockRate (kHz), GlobalMemoryBusWidth (bits).
RATE_ATTRIBUTES = (13, 36, 37)
COMPUTE_MODE_ATTRIBUTE = 20  # cudaDevAttrComputeMode; 0: any number of processes may use the GPU
HOST_PAGES_ATTRIBUTE = 100  # cudaDevAttrPageableMemoryAccessUsesHostPageTables
# Of pages that are touched to see it recorded: enough to share none with another allocation.
TOUCHED_BYTES = 4 * 2**20
# Nothing but time passes; its clock counts nanoseconds.
HOLD_BACK = """
extern "C" __global__ void hold_back(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
"""
# What buffers take together that are fetched at once, and what each begins at a multiple of.
TOGETHER_BYTES, ALIGNED = 4 * 2**20, 64
SHARED_ATTRIBUTE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


def missing(device: Device) -> str | None:
    """Why this GPU cannot be used, and how to get it; None if it can."""
    if find_spec("cupy") is None:
        return f"CuPy not installed: {nvrtc.INSTALL}"
    count = _count()
    if isinstance(count, str):
        return count
    if device.index >= count:
        return f"there are {count} CUDA GPUs, numbered from 0"
    return nvrtc.missing()


def open_runtime(device: Device, memory: str) -> CudaRuntime:
    return CudaRuntime(device, memory == "managed")


def inventory() -> Iterator[Found]:
    """Every GPU with its number, or why there is none."""
    if reason := missing(CUDA):
        yield Found(str(CUDA), problem=reason)
        return
    index = 0
    while missing(device := Device("cuda", index)) is None:
        most, facts = limits(index), gpu(index)
        yield Found(
            str(device),
            facts.name,
            processors=most.processors,
            memory_bytes=most.memory_bytes,
            limits=most,
            managed=True,
            details=f"compute capability {facts.capability / 10}, {versions()}",
        )
        index += 1


@cache
def _count() -> int | str:
    """How many GPUs there are, or why none can be seen."""
    try:
        import cupy

        return int(cupy.cuda.runtime.getDeviceCount()) or "no CUDA GPU on this machine"
    except Exception as error:
        return f"no CUDA GPU on this machine ({' '.join(str(error).split())})"


@cache
def limits(index: int) -> Limits:
    import cupy

    facts = cupy.cuda.runtime.getDeviceProperties(index)
    return Limits(
        threads=facts["maxThreadsPerBlock"],
        shared_bytes=min(facts["sharedMemPerBlock"], USUAL_SHARED_BYTES),
        constant_bytes=min(facts["totalConstMem"], USUAL_CONSTANT_BYTES),
        memory_bytes=facts["totalGlobalMem"],
        processors=facts["multiProcessorCount"],
    )


def device_limits(device: Device) -> Limits:
    return limits(device.index)


@cache
def gpu(index: int) -> Gpu:
    """Its size and rates, as the driver gives them."""
    from cupy.cuda import runtime

    facts = runtime.getDeviceProperties(index)
    clock, memory_clock, memory_bits = (
        runtime.deviceGetAttribute(number, index) for number in RATE_ATTRIBUTES
    )
    return Gpu(
        name=facts["name"].decode(),
        capability=10 * facts["major"] + facts["minor"],
        processors=facts["multiProcessorCount"],
        hertz=1e3 * clock,
        bytes_per_second=2e3 * memory_clock * memory_bits / 8,  # two transfers a cycle
    )


def takes_processes(index: int) -> bool:
    """Whether several processes may use the GPU at a time: who runs it can forbid that."""
    from cupy.cuda import runtime

    return int(runtime.deviceGetAttribute(COMPUTE_MODE_ATTRIBUTE, index)) == 0


@cache
def reads_host_pages(index: int) -> bool:
    """Whether the GPU reads any memory of the host's where it lies, as beside a Grace CPU: the
    driver then need not have copied what is not pinned when a call returns."""
    from cupy.cuda import runtime

    return bool(runtime.deviceGetAttribute(HOST_PAGES_ATTRIBUTE, index))


def wait_asleep(device: Device) -> None:
    """From now on whoever waits for the GPU leaves its core to others. Waking up takes some
    microseconds: not for what is timed."""
    from cuda.bindings import driver

    driver.cuInit(0)
    flags = driver.CUctx_flags.CU_CTX_SCHED_BLOCKING_SYNC
    error, *_ = driver.cuDevicePrimaryCtxSetFlags(device.index, int(flags))
    if error:
        raise TilewrightError(
            f"device '{device}': the driver refuses to wait asleep ({error.name})"
        )


def versions() -> str:
    """The CUDA versions of driver and run-time library."""
    from cupy.cuda import runtime

    numbers = (runtime.driverGetVersion(), runtime.runtimeGetVersion())
    driver, library = (f"{number // 1000}.{number % 1000 // 10}" for number in numbers)
    return f"driver for CUDA {driver}, library {library}"


@lru_cache(maxsize=1000)
def _function(index: int, compiled: nvrtc.Compiled) -> Any:
    """A kernel without constant memory, which any number of programs may share."""
    return _module(compiled).get_function(compiled.entry)


def _module(compiled: nvrtc.Compiled) -> Any:
    from cupy.cuda.function import Module

    module = Module()
    module.load(compiled.cubin)
    return module


def _pinned(shape: Shape, dtype: DTypeLike) -> HostArray:
    # As cupyx.empty_pinned does, without all else of cupyx, which every run would have to import.
    import cupy

    kind = np.dtype(dtype)
    memory = cupy.cuda.alloc_pinned_memory(max(1, math.prod(shape) * kind.itemsize))
    return np.ndarray(shape, kind, buffer=memory)


@cache
def _staging(index: int) -> Staging:
    """Of a GPU, for whatever is not pinned."""
    return Staging([_pinned((PIECE_BYTES,), np.uint8) for _ in range(PIECES)])


@cache
def _together(index: int) -> HostArray:
    """Of a GPU, for small buffers that are fetched at once."""
    return _pinned((TOGETHER_BYTES,), np.uint8)


class CudaRuntime(EventRecorder):
    recording_disturbs = True
    clock = "CUDA events around each launch and copy, and the host's clock around each call"

    def __init__(self, device: Device, managed: bool = False) -> None:
        if reason := missing(device):
            raise TilewrightError(f"device '{device}': {reason}")
        super().__init__()
        import cupy

        self.cupy = cupy
        self.name = str(device)
        self.index = device.index
        self.managed = managed
        self.limits = limits(self.index)
        self.device = cupy.cuda.Device(self.index)
        self.device.use()
        self.capability = int(self.device.compute_capability)
        self.architecture = architecture(self.capability)
        self.kernels = cupy.cuda.Stream.null
        self.sends, self.fetches = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))

    def describe(self) -> str:
        return f"{gpu(self.index).name}, {self.limits.processors} multiprocessors"

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        kind = np.dtype(dtype)
        try:
            if self.managed:
                size = max(1, math.prod(shape) * kind.itemsize)
                return self.cupy.ndarray(shape, kind, self.cupy.cuda.malloc_managed(size))
            return self.cupy.empty(shape, kind)
        except self.cupy.cuda.memory.OutOfMemoryError as error:
            raise TilewrightError(
                f"{self.name} is out of memory: use a smaller --batch, or --memory streamed"
            ) from error

    def upload(self, array: HostArray) -> Any:
        buffer = self.allocate(array.shape, array.dtype)
        self.write(buffer, array)
        return buffer

    def write(self, buffer: Any, array: HostArray) -> None:
        # Constant memory is the device's alone, also where all other memory is shared.
        constant = isinstance(buffer.data.mem, self.cupy.cuda.UnownedMemory)
        if self.managed and not constant:
            self._finish(self.kernels)  # whoever reads the old content must be done
            _host_view(buffer)[:] = array
        elif array.size:
            copy = partial(self._send, buffer, array)
            self._timed(self.kernels, "copy", HOST_TO_DEVICE, (), array.nbytes, copy)
            # The array is the caller's to change. What is not pinned the driver has copied by now,
            # unless the GPU reads it where it lies.
            if self.trace is not None or reads_host_pages(self.index) or self.is_pinned(array):
                self._finish(self.kernels)

    def download(self, buffer: Any) -> HostArray:
        if self.managed:
            self._finish(self.kernels)
            return _host_view(buffer).copy()
        copy = partial(self._fetch, buffer)
        return self._timed(self.kernels, "copy", DEVICE_TO_HOST, (), buffer.nbytes, copy)

    def download_together(self, buffers: Sequence[Any]) -> list[HostArray]:
        """Of several buffers, valid until the next time: the host waits once for all of them."""
        sizes = [-(-each.nbytes // ALIGNED) * ALIGNED for each in buffers]
        if self.managed or sum(sizes) > TOGETHER_BYTES:
            return [self.download(each) for each in buffers]
        room, stream, fetched = _together(self.index), self.kernels, []
        for size, each in zip(sizes, buffers, strict=True):
            place, room = room[: each.nbytes], room[size:]
            copy = partial(each.data.copy_to_host_async, place.ctypes.data, each.nbytes, stream)
            self._timed(stream, "copy", DEVICE_TO_HOST, (), each.nbytes, copy)
            fetched.append(place.view(each.dtype).reshape(each.shape))
        self._finish(stream)
        return fetched

    def _send(self, buffer: Any, array: HostArray) -> None:
        if array.nbytes < LEAST_BYTES or self.is_pinned(array):
            buffer.set(array, stream=self.kernels)
            return

        def begin(first: int, piece: HostArray) -> Mark:
            place, size = piece.ctypes.data, piece.nbytes
            (buffer.data + first).copy_from_host_async(place, size, self.kernels)
            return self._mark(self.kernels)

        _staging(self.index).send(array, begin, self.wait)

    def _fetch(self, buffer: Any) -> HostArray:
        if buffer.nbytes < LEAST_BYTES:
            return np.asarray(buffer.get(stream=self.kernels))

        def begin(first: int, piece: HostArray) -> Mark:
            place, size = piece.ctypes.data, piece.nbytes
            (buffer.data + first).copy_to_host_async(place, size, self.kernels)
            return self._mark(self.kernels)

        array = np.empty(buffer.shape, buffer.dtype)
        _staging(self.index).fetch(array, begin, self.wait)
        return array

    def compile(self, source: Source) -> GpuKernel:
        source.check(self.limits)
        compiled = nvrtc.compile_source(source, self.architecture)
        if not source.constant_floats:
            return GpuKernel(source.name, source.block, _function(self.index, compiled))
        # Constant memory belongs to a loaded module: each kernel that has some loads its own.
        module = _module(compiled)
        memory = self.cupy.cuda.UnownedMemory(
            module.get_global_var(source.constant_symbol), 4 * source.constant_floats, module,
            self.index,
        )  # fmt: skip
        symbol = self.cupy.cuda.MemoryPointer(memory, 0)
        constant = self.cupy.ndarray((source.constant_floats,), np.float32, symbol)
        return GpuKernel(source.name, source.block, module.get_function(compiled.entry), constant)

    def compile_ahead(self, texts: Iterable[tuple[str, str]]) -> Sequence[Future[nvrtc.Compiled]]:
        """Begin to compile kernels by their names and texts; `compile` waits for its own."""
        return nvrtc.compile_ahead([(*text, self.architecture) for text in texts])

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel:
        """A kernel in CUDA's own language, launched with so much shared memory."""
        handle = _function(self.index, nvrtc.compile_cubin(name, text, self.architecture))
        self.cupy.cuda.driver.funcSetAttribute(handle.ptr, SHARED_ATTRIBUTE, shared_bytes)
        return GpuKernel(name, (threads, 1, 1), handle, shared_bytes=shared_bytes)

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Buffer | int],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        given = tuple(np.int32(a) if isinstance(a, int) else a for a in arguments)
        function: Any = kernel.handle
        launch = partial(
            function, grid, kernel.block, given, kernel.shared_bytes, stream=self.kernels
        )
        self._timed(
            self.kernels, "kernel", kernel.name, layers, 0, launch,
            grid=grid, block=kernel.block, cost=cost,
        )  # fmt: skip

    def synchronise(self) -> None:
        """Wait for the GPU, then place its events on the host's clock."""
        for stream in (self.sends, self.fetches, self.kernels):
            self._finish(stream)
        self.read_events(self.kernels)

    def new_event(self) -> TimingEvent:
        event: TimingEvent = self.cupy.cuda.Event()
        return event

    def elapsed(self, first: TimingEvent, last: TimingEvent) -> float:
        return float(self.cupy.cuda.get_elapsed_time(first, last))

    def hold_back(self, seconds: float) -> None:
        cubin = nvrtc.compile_cubin("hold_back", HOLD_BACK, self.architecture)
        function, one = _function(self.index, cubin), (1, 1, 1)
        function(one, one, (np.uint64(1e9 * seconds),), 0, stream=self.kernels)

    def shared_pages(self) -> ManagedPages:
        return ManagedPages(self.cupy.cuda.malloc_managed(TOUCHED_BYTES), TOUCHED_BYTES)

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        return _pinned(shape, dtype)

    def is_pinned(self, array: HostArray) -> bool:
        from cuda.bindings import driver

        kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        error, found = driver.cuPointerGetAttribute(kind, array.ctypes.data)
        # The driver calls any other memory of the host an invalid value.
        return error == 0 and int(found) == int(driver.CUmemorytype.CU_MEMORYTYPE_HOST)

    def send(self, buffer: Any, array: HostArray, after: Mark | None) -> Mark:
        if after is not None:
            self.sends.wait_event(after)
        place = array.ctypes.data
        copy = partial(buffer.data.copy_from_host_async, place, array.nbytes, self.sends)
        self._timed(self.sends, "copy", HOST_TO_DEVICE, (), array.nbytes, copy)
        return self._mark(self.sends)

    def fetch(self, array: HostArray, buffer: Any, after: Mark | None) -> Mark:
        if after is not None:
            self.fetches.wait_event(after)
        place = array.ctypes.data
        copy = partial(buffer.data.copy_to_host_async, place, array.nbytes, self.fetches)
        self._timed(self.fetches, "copy", DEVICE_TO_HOST, (), array.nbytes, copy)
        return self._mark(self.fetches)

    def mark(self) -> Mark:
        return self._mark(self.kernels)

    def hold(self, mark: Mark) -> None:
        self.kernels.wait_event(mark)

    def wait(self, mark: Any) -> None:
        with calling(self.trace, "cudaEventSynchronize"):
            mark.synchronize()

    def _finish(self, stream: Any) -> None:
        self.begun = False
        with calling(self.trace, "cudaStreamSynchronize"):
            stream.synchronize()

    def _mark(self, stream: Any) -> Mark:
        event = self.cupy.cuda.Event()
        event.record(stream)
        mark: Mark = event
        return mark

    def _timed(
        self, stream: Any, kind: Kind, name: str, layers: tuple[str, ...], size: int,
        work: Callable[[], Result],
        grid: Grid | None = None, block: Block | None = None, cost: Cost | None = None,
    ) -> Result:  # fmt: skip
        if self.trace is None:
            return work()
        lane = f"stream {stream.ptr:#x}"
        return self.timed(
            stream, kind, name, layers, size, work, CALLS[kind], lane, grid, block, cost
        )


class ManagedPages:
    """Unified memory that nobody has touched: when the host does, the driver has a page fault."""

    def __init__(self, memory: Any, size: int) -> None:
        self.memory = memory
        self.addresses = range(memory.ptr, memory.ptr + size)

    def touch(self) -> None:
        ctypes.memset(self.addresses.start, 0, len(self.addresses))


def _host_view(buffer: Any) -> HostArray:
    """Managed memory as the host sees it."""
    memory = (ctypes.c_byte * buffer.nbytes).from_address(buffer.data.ptr)
    return np.frombuffer(memory, buffer.dtype).reshape(buffer.shape)
