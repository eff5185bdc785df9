"""A GPU for calls that overlap: memory and kernels by CuPy, launches by CUDA's driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import DTypeLike

from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, DeviceFault, GpuKernel, HostArray
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.dialect import Limits
from tilewright.serving.driver import Driver


class Launching(Protocol):
    """The part of CUDA's driver that calls need (`driver.py`)."""

    context: int
    current: int
    ask: int
    launch: int
    replay: int
    move: int
    send: int
    fetch: int
    waiting: int

    def series(self, launches: Sequence[int]) -> tuple[int, list[int]]: ...

    def graph(self, series: int) -> int: ...

    def forget(self, series: int, graphs: Sequence[int]) -> None: ...

    def fault(self, error: int) -> DeviceFault: ...

    def inside(self) -> AbstractContextManager[None]: ...

    def wait(self, stream: int) -> None: ...

    def wait_for_all(self) -> None: ...

    def gpu_of(self, address: int) -> int: ...


class Card(Protocol):
    """What compiled networks need of a GPU; the tests have one in the host's memory."""

    index: int

    @property
    def driver(self) -> Launching: ...

    @property
    def limits(self) -> Limits: ...

    @property
    def capability(self) -> int: ...

    def preparing(self) -> AbstractContextManager[None]:
        """Around all that allocates or compiles; over when that is ready for any stream."""

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any: ...

    def upload(self, array: HostArray) -> Any: ...

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel: ...

    def pinned(self, size: int) -> HostArray:
        """So many bytes of the host's memory that the GPU can copy from and to."""

    def address(self, buffer: Buffer) -> int: ...

    def function(self, kernel: GpuKernel) -> int:
        """The driver's handle."""

    def new_stream(self) -> int:
        """One that waits for no other, and lives as long as the card."""


class CudaCard:
    """What is made here is made on a stream of its own, which waits for nobody's work."""

    def __init__(self, runtime: CudaRuntime, library: Any) -> None:
        self.runtime, self.index = runtime, runtime.index
        self.limits, self.capability = runtime.limits, runtime.capability
        self.streams: list[Any] = []
        with runtime.device:
            self.side = runtime.cupy.cuda.Stream(non_blocking=True)
            self.driver = Driver(library)

    @contextmanager
    def preparing(self) -> Iterator[None]:
        with self.runtime.device, self.side, self.driver.while_capturing():
            yield
            self.side.synchronize()

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        return self.runtime.allocate(shape, dtype)

    def upload(self, array: HostArray) -> Any:
        buffer = self.allocate(array.shape, array.dtype)
        buffer.set(array, stream=self.side)
        self.side.synchronize()  # the array is the caller's to change
        return buffer

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel:
        return self.runtime.compile_text(name, text, threads, shared_bytes)

    def pinned(self, size: int) -> HostArray:
        return self.runtime.pinned((size,), np.uint8)

    def address(self, buffer: Buffer) -> int:
        held: Any = buffer  # CuPy's own type
        return int(held.data.ptr)

    def function(self, kernel: GpuKernel) -> int:
        handle: Any = kernel.handle
        return int(handle.ptr)

    def new_stream(self) -> int:
        self.streams.append(self.runtime.cupy.cuda.Stream(non_blocking=True))
        return int(self.streams[-1].ptr)
