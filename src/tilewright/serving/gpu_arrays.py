"""Arrays in a GPU's memory, whoever's: where they lie, without a copy, and new ones of their kind.

Of an array a library is asked for its address and for facts: shape, type, GPU, and whether it is
contiguous. They are kept as the library has them, and known again when the next batch comes: to put
them into words takes longer than a launch.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import cache
from typing import Any, NamedTuple, Protocol

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.serving.again import telling

UINT8, FLOAT32 = "uint8", "float32"
# What a library says of an array besides its address.
Facts = tuple[Any, ...]


class Looked(NamedTuple):
    """Facts in our words; a GPU below 0 is the host's memory."""

    shape: Shape
    dtype: str
    contiguous: bool
    gpu: int


class Kind(Protocol):
    """The arrays of one library."""

    tell: int  # the address of a function that tells of them without Python; 0: there is none
    gradients: bool  # they may require some

    def look(self, array: Any) -> tuple[int, Facts]:
        """Where it lies, and what else it says."""

    def read(self, facts: Facts) -> Looked: ...

    def outputs(self, shape: Shape) -> Facts:
        """What an array of outputs must say."""

    def empty(self, like: Any, shape: Shape, stream: int | None) -> tuple[Any, int]:
        """A new one in float32 for work on a stream, or on the current one; and its address."""

    def current_stream(self) -> int:
        """The handle of the stream on which the library works in this thread."""


class TorchKind:
    gradients = True

    def __init__(self, index: int) -> None:
        import torch

        self.torch, self.index = torch, index
        self.float32 = torch.float32
        self.tell = telling(torch.Tensor)

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

    def outputs(self, shape: Shape) -> Facts:
        return shape, self.float32, True, self.index, False

    def empty(self, like: Any, shape: Shape, stream: int | None) -> tuple[Any, int]:
        if stream is None:
            made = like.new_empty(shape, dtype=self.float32)
        else:
            cuda = self.torch.cuda
            with cuda.stream(cuda.ExternalStream(stream, device=like.device)):
                made = like.new_empty(shape, dtype=self.float32)
        return made, made.data_ptr()

    def current_stream(self) -> int:
        # As PyTorch's own compiler asks for it: torch.cuda.current_stream makes an object first.
        return int(self.torch._C._cuda_getCurrentRawStream(self.index))


class CupyKind:
    gradients = False

    def __init__(self, index: int) -> None:
        import cupy

        self.cupy, self.index = cupy, index
        self.float32 = cupy.dtype(cupy.float32)
        self.tell = telling(cupy.ndarray)

    def look(self, array: Any) -> tuple[int, Facts]:
        memory = array.data
        return memory.ptr, (array.shape, array.dtype, array.flags.c_contiguous, memory.device_id)

    def read(self, facts: Facts) -> Looked:
        shape, dtype, contiguous, gpu = facts
        return Looked(shape, dtype.name, contiguous, gpu)

    def outputs(self, shape: Shape) -> Facts:
        return shape, self.float32, True, self.index

    def empty(self, like: Any, shape: Shape, stream: int | None) -> tuple[Any, int]:
        with self._at_work(stream):
            made = self.cupy.empty(shape, self.cupy.float32)
        return made, made.data.ptr

    def current_stream(self) -> int:
        return int(self.cupy.cuda.get_current_stream(self.index).ptr)

    def adopt(self, array: Any, stream: int | None) -> Any:
        """Anybody's array as CuPy's, in the same memory, ready for a stream or the current one."""
        take = self.cupy.from_dlpack if hasattr(array, "__dlpack__") else self.cupy.asarray
        with self._at_work(stream):
            return take(array)

    def _at_work(self, stream: int | None) -> AbstractContextManager[object]:
        """With the GPU as CuPy's current one, and the stream, if there is one."""
        cuda = self.cupy.cuda
        if stream is None and cuda.runtime.getDevice() == self.index:
            return nullcontext()
        stack = ExitStack()
        stack.enter_context(cuda.Device(self.index))
        if stream is not None:
            stack.enter_context(_borrowed(cuda.Stream).from_external(Handle(stream)))
        return stack


class Handle(NamedTuple):
    """A stream by its number, as libraries exchange them."""

    stream: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.stream


@cache
def _borrowed(streams: Any) -> Any:
    """CuPy's streams, without an end: some versions end a stream that was only lent to them."""
    return type("Borrowed", (streams,), {"__del__": lambda stream: None})


def handle_of(stream: Any) -> int:
    """The driver's handle of a stream: a number, or what a library's object says."""
    if isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):  # PyTorch's, CuPy's
        if isinstance(found := getattr(stream, name, None), int):
            return found
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise TilewrightError(
        f"stream of type {type(stream).__name__}: give a handle as a number, or a stream of "
        "PyTorch's or CuPy's"
    )
