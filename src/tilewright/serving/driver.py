"""CUDA's driver, called without a detour: what a call of a compiled network needs of it.

A launch through CuPy costs the host 7.7 µs, through cuda.bindings 5.7 µs (H200, 2026-11-15). Most
of that is spent on arguments. Here they are C values that were made before, and the function is
called as it stands in the driver's library: with one in its place that does nothing, that takes 0.7
µs (Intel Xeon, 2026-11-15).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_size_t, c_void_p
from functools import cache
from typing import Any

from tilewright.runtime import DeviceFault

LIBRARY = "libcuda.so.1"
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
# CUDA_ERROR_INVALID_CONTEXT and CUDA_ERROR_INVALID_HANDLE: a thread that has done nothing on a GPU
# yet, and one that is at work on another.
NO_CONTEXT, OTHER_CONTEXT = 201, 400
NAMES = (
    "cuLaunchKernel", "cuGetErrorString", "cuCtxGetCurrent", "cuCtxSetCurrent",
    "cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxSynchronize", "cuStreamSynchronize",
    "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode", "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
)  # fmt: skip


@cache
def library() -> Any:
    return ctypes.CDLL(LIBRARY)


class WrongContext(DeviceFault):
    """The thread works elsewhere; nothing was launched."""


class Driver:
    """The functions of the library, for the context of one GPU.

    Arguments of `launch` are C values, as ctypes has them, since Python's integers would be cut to
    32 bits; all others are plain numbers.
    """

    def __init__(self, library: Any) -> None:
        # A library looks a function up anew whenever it is asked for one.
        self.functions: dict[str, Callable[..., int]] = {name: library[name] for name in NAMES}
        # As they are: checks of arguments by ctypes take as long again.
        self.launch = self.functions["cuLaunchKernel"]
        self.context = self._current()

    def check(self, error: int) -> None:
        if error:
            raise self.fault(error)

    def fault(self, error: int) -> DeviceFault:
        said = c_char_p()
        known = self.functions["cuGetErrorString"](c_int(error), ctypes.byref(said)) == 0
        words = said.value.decode() if known and said.value else "unknown"
        kind = WrongContext if error in (NO_CONTEXT, OTHER_CONTEXT) else DeviceFault
        return kind(f"CUDA's driver: {words} (error {error})")

    def _current(self) -> int | None:
        found = c_void_p()
        self.check(self.functions["cuCtxGetCurrent"](ctypes.byref(found)))
        return found.value

    @contextmanager
    def inside(self) -> Iterator[None]:
        """With the GPU's context as the thread's, which it keeps if it has none."""
        if self._current() is None:
            self.check(self.functions["cuCtxSetCurrent"](c_void_p(self.context)))
            yield
            return
        self.check(self.functions["cuCtxPushCurrent_v2"](c_void_p(self.context)))
        try:
            yield
        finally:
            self.check(self.functions["cuCtxPopCurrent_v2"](ctypes.byref(c_void_p())))

    @contextmanager
    def while_capturing(self) -> Iterator[None]:
        """Memory may be allocated, and modules loaded, while a stream of somebody is captured."""
        mode = c_int(RELAXED)
        exchange = self.functions["cuThreadExchangeStreamCaptureMode"]
        self.check(exchange(ctypes.byref(mode)))
        try:
            yield
        finally:
            self.check(exchange(ctypes.byref(mode)))

    def is_captured(self, stream: int) -> bool:
        """Whether work on the stream goes into a graph instead of being done."""
        status = c_int()
        self.check(self.functions["cuStreamIsCapturing"](c_void_p(stream), ctypes.byref(status)))
        return status.value != 0

    def copy_in(self, device_address: int, host_address: int, size: int, stream: int) -> None:
        given = c_void_p(device_address), c_void_p(host_address), c_size_t(size), c_void_p(stream)
        self.check(self.functions["cuMemcpyHtoDAsync_v2"](*given))

    def copy_out(self, host_address: int, device_address: int, size: int, stream: int) -> None:
        given = c_void_p(host_address), c_void_p(device_address), c_size_t(size), c_void_p(stream)
        self.check(self.functions["cuMemcpyDtoHAsync_v2"](*given))

    def wait(self, stream: int) -> None:
        self.check(self.functions["cuStreamSynchronize"](c_void_p(stream)))

    def wait_for_all(self) -> None:
        """Until nothing is at work in the context."""
        with self.inside(), self.while_capturing():
            self.check(self.functions["cuCtxSynchronize"]())
