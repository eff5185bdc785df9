"""Arrays in a GPU's memory, whoever's: where they lie, without a copy, and new ones of their kind.

Of an array a library is asked for its address and for facts: shape, type, GPU, and whether it is
contiguous. They are kept as the library has them, and known again when the next batch comes: to put
them into words takes longer than a launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from operator import attrgetter, itemgetter
from sys import getrefcount
from typing import Any, NamedTuple, Protocol

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.serving import exchanged
from tilewright.serving.again import telling
from tilewright.serving.card import Launching
from tilewright.serving.exchanged import strides_of
from tilewright.serving.host import on_host

UINT8, FLOAT32 = "uint8", "float32"
# What a library says of an array besides its address.
Facts = Any
LEGACY = 1  # the default stream, where 0 would be no stream
CUDA = 1  # PyTorch's number of that kind of device
MOST_BORROWED = 64
MOST_RECYCLED = 4  # as many as there are graphs


class Looked(NamedTuple):
    """Facts in our words; a GPU below 0 is the host's memory."""

    shape: Shape
    dtype: str
    contiguous: bool
    gpu: int
    writable: bool = True


class Kind(Protocol):
    """The arrays of one library."""

    tell: int  # the address of a function that tells of them without Python; 0: there is none
    gradients: bool  # they may require some
    adopts: bool  # not they are looked at, but what `adopt` makes of them

    def adopt(self, array: Any, stream: int) -> Any:
        """What the library hands out of an array for work on a stream, to be held until then."""

    def look(self, array: Any) -> tuple[int, Facts]:
        """Where it lies, and what else it says."""

    def read(self, facts: Facts) -> Looked: ...

    def empty(self, shape: Shape, stream: int | None) -> tuple[Any, int]:
        """A new one in float32 for work on a stream, or on the current one; and its address."""

    def maker(self, shape: Shape) -> Callable[[], Any]:
        """Makes new ones in float32 for the current stream, on the library's current GPU."""

    def on(self, stream: int | None, work: Callable[[], Any]) -> Any:
        """Work with the GPU as the library's current one, and the stream, if there is one."""

    def again(self, shape: Shape) -> Callable[[int | None], tuple[Any, int]]:
        """The same as `empty` of a shape, where all that it makes is for work on one stream."""

    def current_stream(self) -> int:
        """The handle of the stream on which the library works in this thread."""


class OwnKind:
    """Of arrays that are looked at as they are."""

    adopts = False

    def adopt(self, array: Any, stream: int) -> Any:
        return array


class TorchKind(OwnKind):
    """Of PyTorch its compiler's ways are used: they take a third of the time of `torch.empty`."""

    gradients = True

    def __init__(self, index: int) -> None:
        import torch

        self.torch, self.index = torch, index
        self.float32, self.new = torch.float32, torch._C._dynamo.guards._empty_strided_cuda
        self.tell = telling(torch.Tensor)
        # As PyTorch's own compiler asks: torch.cuda.current_stream makes an object first. What is
        # built for the host alone has nothing of these.
        own: Any = torch._C
        if hasattr(own, "_cuda_getDevice"):
            self.device, self.now, self.work_on = (
                own._cuda_getDevice, own._cuda_getCurrentStream, own._cuda_setStream
            )  # fmt: skip
            self.current_stream: Callable[[], int] = partial(own._cuda_getCurrentRawStream, index)

    def look(self, array: Any) -> tuple[int, Facts]:
        return array.data_ptr(), (
            array.shape, array.dtype, array.is_contiguous(), array.get_device(),
            array.requires_grad,
        )  # fmt: skip

    def read(self, facts: Facts) -> Looked:
        shape, dtype, contiguous, gpu, gradient = facts
        if gradient:
            raise TilewrightError(
                "a tensor requires a gradient, and none is computed here: give x.detach()"
            )
        return Looked(tuple(shape), str(dtype).removeprefix("torch."), contiguous, gpu)

    def empty(self, shape: Shape, stream: int | None) -> tuple[Any, int]:
        made = self.on(stream, self.maker(shape))
        return made, made.data_ptr()

    def on(self, stream: int | None, work: Callable[[], Any]) -> Any:
        if self.device() != self.index:
            with self.torch.cuda.device(self.index):
                return self.on(stream, work)
        if stream is None:
            return work()
        now = self.now(self.index)
        # A stream that is not PyTorch's is known to it by its handle; the default one is 0.
        self.work_on(0 if stream == LEGACY else stream, self.index, CUDA)
        try:
            return work()
        finally:
            self.work_on(*now)

    def maker(self, shape: Shape) -> Callable[[], Any]:
        return partial(self.new, shape, strides_of(shape), self.float32)

    def again(self, shape: Shape) -> Callable[[int | None], tuple[Any, int]]:
        return partial(self.empty, shape)  # memory has other streams' work noted: record_stream


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
    holds it: what CuPy's own pool does for a stream, in a third of its time."""

    def __init__(self, kind: CupyKind, shape: Shape) -> None:
        self.kind, self.shape, self.new, self.float32 = kind, shape, kind.new, kind.float32
        self.memory: list[Any] = []
        self.nobody = 0

    def __call__(self, stream: int | None) -> tuple[Any, int]:
        for pointer in self.memory:
            if _holders(pointer) == self.nobody:
                break
        else:
            pointer = self._more(stream)
        return self.new(self.shape, self.float32, pointer + 0), pointer.ptr

    def _more(self, stream: int | None) -> Any:
        cupy = self.kind.cupy
        size = math.prod(self.shape) * self.float32.itemsize
        pointer = self.kind.on(stream, partial(cupy.cuda.alloc, size))
        self.nobody = _holders(pointer)
        if len(self.memory) < MOST_RECYCLED:
            self.memory.append(pointer)
        return pointer


def _holders(pointer: Any) -> int:
    """How often memory is referred to; each array and view does so by a pointer of its own."""
    return getrefcount(pointer.mem)


class AdoptedKind:
    """Arrays of a library that shares them by a protocol alone; outputs for them are CuPy's."""

    tell, gradients, adopts = 0, False, True

    def __init__(self, own: CupyKind) -> None:
        self.index, self.current_stream = own.index, own.current_stream
        self.empty, self.maker, self.again, self.on = own.empty, own.maker, own.again, own.on


class DlpackKind(AdoptedKind):
    def __init__(self, own: CupyKind) -> None:
        super().__init__(own)
        self.told = exchanged.told()
        self.how = {"max_version": exchanged.VERSION}
        self.look: Callable[[Any], tuple[int, Facts]] = itemgetter(1)

    def adopt(self, array: Any, stream: int) -> Any:
        try:
            capsule = array.__dlpack__(stream=stream or LEGACY, **self.how)
        except TypeError:
            if not self.how:
                raise
            self.how = {}  # which older ones do not take
            return self.adopt(array, stream)
        return capsule, self.told(capsule)

    def read(self, facts: Facts) -> Looked:
        return Looked(*exchanged.of_dlpack(facts, self.index))


class InterfaceKind(AdoptedKind):
    """CUDA's array interface, which leaves to whoever reads it to find the GPU, and to wait."""

    def __init__(self, own: CupyKind, driver: Launching) -> None:
        super().__init__(own)
        self.driver = driver

    def adopt(self, array: Any, stream: int) -> Any:
        interface = array.__cuda_array_interface__
        made_on = interface.get("stream")
        if made_on is not None and made_on != (stream or LEGACY):
            with self.driver.inside():
                self.driver.wait(made_on)
        if interface.get("mask") is not None:
            raise TilewrightError("it has a mask, and all values are read")
        return interface

    def look(self, array: Any) -> tuple[int, Facts]:
        address, fixed = array["data"]
        facts = array["shape"], array["typestr"], array.get("strides")
        return address, (facts, self.driver.gpu_of(address) if address else self.index, fixed)

    def read(self, facts: Facts) -> Looked:
        known, gpu, fixed = facts
        return Looked(*exchanged.of_interface(known), gpu, not fixed)


def held_of(kind: Kind, array: Any, stream: int) -> Any:
    """What is looked at of an array, for work on a stream; None if it lies on the host."""
    if not kind.adopts:
        return array
    try:
        return kind.adopt(array, stream)
    except Exception as error:  # whatever that library raises
        if on_host(array):
            return None
        said = str(error).partition("\n")[0]
        name = f"{type(array).__module__}.{type(array).__qualname__}"
        raise TilewrightError(f"an array of type {name} cannot be read: {said}") from error


class Handle(NamedTuple):
    """A stream by its number, as libraries exchange them."""

    stream: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream


def _borrowing(streams: Any) -> Callable[[int], Any]:
    """Makes CuPy's streams of handles, without an end: some versions end one that was only lent."""
    borrowed: Any = type("Borrowed", (streams,), {"__del__": lambda stream: None})
    return lambda handle: borrowed.from_external(Handle(handle))


def handle_of(stream: Any) -> int:
    """The driver's handle of a stream: a number, or what a library's object says."""
    read = _readers.get(type(stream))
    if read is None:
        read = _readers[type(stream)] = _reader(stream)
    return read(stream)


# By the types that came, how handles are read of them.
_readers: dict[type, Callable[[Any], int]] = {}


def _reader(stream: Any) -> Callable[[Any], int]:
    if isinstance(stream, int):
        return int
    for name in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
        if isinstance(getattr(stream, name, None), int):
            return attrgetter(name)
    if hasattr(stream, "__cuda_stream__"):
        return lambda stream: int(stream.__cuda_stream__()[1])
    raise TilewrightError(
        f"stream of type {type(stream).__name__}: give a handle as a number, or a stream of "
        "PyTorch's or CuPy's"
    )
