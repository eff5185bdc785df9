"""CUDA's driver, called without a detour: what a call of a compiled network needs of it.

A launch through CuPy costs the host 7.7 µs, through cuda.bindings 5.7 µs (H200, 2026-11-15). Most
of that is spent on arguments. Here they are C values that were made before, and the driver's own
function is called by machine code (`at_once.py`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any

from tilewright.runtime import DeviceFault
from tilewright.serving import machine_code

LIBRARY = "libcuda.so.1"
RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
NAMES = (
    "cuGetErrorString", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2", "cuCtxSynchronize", "cuStreamSynchronize",
    "cuThreadExchangeStreamCaptureMode",
    "cuGraphCreate", "cuGraphAddKernelNode_v2", "cuGraphInstantiateWithFlags",
    "cuGraphDestroy", "cuGraphExecDestroy",
)  # fmt: skip
ADDRESSES = (
    "cuCtxGetCurrent", "cuStreamIsCapturing", "cuLaunchKernel", "cuGraphLaunch",
    "cuGraphExecKernelNodeSetParams_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
    "cuStreamSynchronize",
)  # fmt: skip
# Takes an address; gives the GPU's number. Of memory that it does not know the driver says nothing
# but an error, which is -1 here.
ORDINAL_CODE = f"""
define ptr @ordinal(ptr %self, ptr %given, i64 %count) {{
  %found = alloca i32
  %ask = call ptr @PyLong_AsVoidPtr(ptr %self)
  %object = load ptr, ptr %given
  %address = call ptr @PyLong_AsVoidPtr(ptr %object)
  %error = call i32 %ask(ptr %found, i32 {ORDINAL}, ptr %address)
  %value = load i32, ptr %found
  %known = icmp eq i32 %error, 0
  %gpu = select i1 %known, i32 %value, i32 -1
  %long = sext i32 %gpu to i64
  %number = call ptr @PyLong_FromLong(i64 %long)
  ret ptr %number
}}
"""


@cache
def library() -> Any:
    return ctypes.CDLL(LIBRARY)


class Driver:
    """The functions of the library, for the context of one GPU.

    Arguments are plain numbers. Of the functions that machine code calls it has the addresses:
    `current` gives a thread's context; `ask` whether a stream is captured, `launch` a kernel,
    `replay` a graph, `move` a kernel of one, `send` and `fetch` memory; `waiting` is that of
    `wait`.
    """

    def __init__(self, library: Any) -> None:
        # A library looks a function up anew whenever it is asked for one.
        self.functions: dict[str, Callable[..., int]] = {name: library[name] for name in NAMES}
        found = [_address(library[name]) for name in ADDRESSES]
        (
            self.current, self.ask, self.launch, self.replay, self.move, self.send, self.fetch,
            self.waiting,
        ) = found  # fmt: skip
        self.ordinal = machine_code.function(
            "ordinal", ORDINAL_CODE, _address(library["cuPointerGetAttribute"])
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

    def series(self, launches: Sequence[int]) -> tuple[int, list[int]]:
        """A graph of launches, one after the other, and each one's place in it.

        They are given by the addresses of what they take, as the driver has it.
        """
        functions, graph, nodes = self.functions, c_void_p(), [c_void_p()]
        self.check(functions["cuGraphCreate"](ctypes.byref(graph), c_uint(0)))
        assert graph.value is not None
        try:
            for number, place in enumerate(launches):
                node, before = c_void_p(), ctypes.byref(nodes[-1])
                add = functions["cuGraphAddKernelNode_v2"]
                known = c_uint64(min(number, 1))
                self.check(add(ctypes.byref(node), graph, before, known, c_void_p(place)))
                nodes.append(node)
        except DeviceFault:
            functions["cuGraphDestroy"](graph)
            raise
        return graph.value, [each.value or 0 for each in nodes[1:]]

    def graph(self, series: int) -> int:
        """Such a graph, to be replayed."""
        made = c_void_p()
        make = self.functions["cuGraphInstantiateWithFlags"]
        self.check(make(ctypes.byref(made), c_void_p(series), c_uint64(0)))
        assert made.value is not None
        return made.value

    def forget(self, series: int, graphs: Sequence[int]) -> None:
        """If one is being worked on, the driver waits for that."""
        for each in graphs:
            self.check(self.functions["cuGraphExecDestroy"](c_void_p(each)))
        self.check(self.functions["cuGraphDestroy"](c_void_p(series)))

    def gpu_of(self, address: int) -> int:
        """The GPU on which memory lies; -1 is the host."""
        found: int = self.ordinal(address)
        if found < 0:  # as it is for a thread that the driver does not know
            with self.inside():
                found = self.ordinal(address)
        return found

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
