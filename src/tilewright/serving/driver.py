"""CUDA's driver, called without a detour: what a call of a compiled network needs of it.

A launch through CuPy costs the host 7.7 µs, through cuda.bindings 5.7 µs (H200, 2026-11-15). Most
of that is spent on arguments. Here they are C values that were made before, and the driver's own
function is called by machine code (`at_once.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_uint64, c_void_p
from functools import cache
from typing import Any

from tilewright.runtime import DeviceFault

LIBRARY = "libcuda.so.1"
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
NAMES = (
    "cuGetErrorString", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2", "cuCtxSynchronize", "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags",
    "cuGraphDestroy", "cuGraphExecDestroy",
)  # fmt: skip
ADDRESSES = (
    "cuCtxGetCurrent", "cuStreamIsCapturing", "cuLaunchKernel", "cuGraphLaunch",
    "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize",
)  # fmt: skip


@cache
def library() -> Any:
    return ctypes.CDLL(LIBRARY)


class Driver:
    """The functions of the library, for the context of one GPU.

    Arguments are plain numbers. Of the functions that machine code calls it has the addresses:
    `current` gives a thread's context; `ask` whether a stream is captured, `launch` a kernel,
    `replay` a graph, `send` and `fetch` memory; `waiting` is that of `wait`.
    """

    def __init__(self, library: Any) -> None:
        # A library looks a function up anew whenever it is asked for one.
        self.functions: dict[str, Callable[..., int]] = {name: library[name] for name in NAMES}
        found = [_address(library[name]) for name in ADDRESSES]
        self.current, self.ask, self.launch, self.replay, self.send, self.fetch, self.waiting = (
            found
        )
        self.context = self._current() or 0

    def check(self, error: int) -> None:
        if error:
            raise self.fault(error)

    def fault(self, error: int) -> DeviceFault:
        said = c_char_p()
        known = self.functions["cuGetErrorString"](c_int(error), ctypes.byref(said)) == 0
        words = said.value.decode() if known and said.value else "unknown"
        return DeviceFault(f"CUDA's driver: {words} (error {error})")

    def _current(self) -> int | None:
        found = c_void_p()
        self.check(self.functions["cuCtxGetCurrent"](ctypes.byref(found)))
        return found.value

    @contextmanager
    def inside(self) -> Iterator[None]:
        """With the GPU's context as the thread's, which it keeps if it has none."""
        now = self._current()
        if now is None:
            self.check(self.functions["cuCtxSetCurrent"](c_void_p(self.context)))
        if now in (None, self.context):
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

    def graph(self, stream: int, work: Callable[[], int]) -> int:
        """What is launched on a stream, which does none of it, as a graph to be launched."""
        functions, graph, made = self.functions, c_void_p(), c_void_p()
        self.check(functions["cuStreamBeginCapture_v2"](c_void_p(stream), c_int(RELAXED)))
        try:
            refused = work()
        finally:
            error = functions["cuStreamEndCapture"](c_void_p(stream), ctypes.byref(graph))
        self.check(refused or error)
        error = functions["cuGraphInstantiateWithFlags"](ctypes.byref(made), graph, c_uint64(0))
        functions["cuGraphDestroy"](graph)
        self.check(error)
        assert made.value is not None
        return made.value

    def forget(self, graph: int) -> None:
        """If it is being worked on, the driver waits for that."""
        self.check(self.functions["cuGraphExecDestroy"](c_void_p(graph)))

    def wait(self, stream: int) -> None:
        self.check(self.functions["cuStreamSynchronize"](c_void_p(stream)))

    def wait_for_all(self) -> None:
        """Until nothing is at work in the context."""
        with self.inside(), self.while_capturing():
            self.check(self.functions["cuCtxSynchronize"]())


def _address(function: Any) -> int:
    found = ctypes.cast(function, c_void_p).value
    assert found is not None
    return found
