"""CuPy's arrays, and memory for new ones of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from sys import getrefcount
from typing import Any, NamedTuple

from tilewright.model.layers import Shape
from tilewright.serving.again import telling
from tilewright.serving.gpu_arrays import Facts, Looked, OwnKind

MOST_BORROWED = 64
MOST_RECYCLED = 4  # as many as there are graphs


class CupyKind(OwnKind):
    gradients = False

    def __init__(self, index: int) -> None:
        import cupy

        self.cupy, self.index, self.new = cupy, index, cupy.ndarray
        self.float32 = cupy.dtype(cupy.float32)
        self.tell = telling(cupy.ndarray)
        self.current, self.device = cupy.cuda.get_current_stream, cupy.cuda.runtime.getDevice
        self.borrowed = lru_cache(MOST_BORROWED)(_borrowing(cupy.cuda.Stream))

    def look(self, array: Any) -> tuple[int, Facts]:
        memory = array.data
        # What array.flags says too, after ten times as long.
        return memory.ptr, (array.shape, array.dtype, array._c_contiguous, memory.device_id)

    def read(self, facts: Facts) -> Looked:
        shape, dtype, contiguous, gpu = facts
        return Looked(shape, dtype.name, contiguous, gpu)

    def empty(self, shape: Shape, stream: int | None) -> tuple[Any, int]:
        made = self.on(stream, self.maker(shape))
        return made, made.data.ptr

    def on(self, stream: int | None, work: Callable[[], Any]) -> Any:
        if self.device() != self.index:
            with self.cupy.cuda.Device(self.index):
                return self.on(stream, work)
        if stream is None or stream == self.current_stream():
            return work()
        with self.borrowed(stream):
            return work()

    def maker(self, shape: Shape) -> Callable[[], Any]:
        return partial(self.new, shape, self.float32)

    def again(self, shape: Shape) -> Callable[[int | None], tuple[Any, int]]:
        return Recycled(self, shape)

    def current_stream(self) -> int:
        handle: int = self.current(self.index).ptr
        return handle


class Recycled:
    """CuPy's arrays of one shape for work on one stream, in memory that is used again when nobody
    holds it. CuPy's own pool does no more for a stream; a view takes a third of a new array's time.
    """

    def __init__(self, kind: CupyKind, shape: Shape) -> None:
        self.kind, self.make = kind, kind.maker(shape)
        self.arrays: list[Any] = []
        self.nobody = 0

    def __call__(self, stream: int | None) -> tuple[Any, int]:
        for whole in self.arrays:
            if _holders(whole) == self.nobody:
                return whole.view(), whole.data.ptr
        whole = self.kind.on(stream, self.make)
        if len(self.arrays) < MOST_RECYCLED:
            self.arrays.append(whole)
            self.nobody = _holders(whole)
        return whole.view(), whole.data.ptr


def _holders(array: Any) -> int:
    """How often it is referred to: as the base of views, by pointers, and by those made of them."""
    pointer = array.data
    return getrefcount(array) + getrefcount(pointer) + getrefcount(pointer.mem)


class Handle(NamedTuple):
    """A stream by its number, as libraries exchange them."""

    stream: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream


def _borrowing(streams: Any) -> Callable[[int], Any]:
    """Makes CuPy's streams of handles, without an end: some versions end one that was only lent."""
    borrowed: Any = type("Borrowed", (streams,), {"__del__": lambda stream: None})
    return lambda handle: borrowed.from_external(Handle(handle))
