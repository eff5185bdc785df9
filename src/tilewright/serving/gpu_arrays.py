"""Arrays in a GPU's memory, whoever's: where they lie, without a copy, and new ones of their kind.

Of an array a library is asked for its address, shape, type and GPU, and whether it is contiguous:
that is all that a launch needs, and costs well under a microsecond.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Protocol

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape

UINT8, FLOAT32 = "uint8", "float32"


# Its address, shape and type, whether it is contiguous, and the number of its GPU: below 0 it lies
# in the host's memory. A plain tuple: anything else takes as long to make as to find all this out.
Looked = tuple[int, Shape, str, bool, int]


class Kind(Protocol):
    """The arrays of one library."""

    def look(self, array: Any) -> Looked: ...

    def empty(self, like: Any, shape: Shape, stream: int | None) -> tuple[Any, int]:
        """A new one in float32 for work on a stream, or on the current one; and its address."""

    def current_stream(self) -> int:
        """The handle of the stream on which the library works in this thread."""


class TorchKind:
    def __init__(self, index: int) -> None:
        import torch

        self.torch, self.index = torch, index
        self.types = {torch.uint8: UINT8, torch.float32: FLOAT32}
        self.float32 = torch.float32

    def look(self, array: Any) -> Looked:
        if array.requires_grad:
            raise TilewrightError(
                "a tensor requires a gradient, and none is computed here: give x.detach()"
            )
        kind = self.types.get(array.dtype) or str(array.dtype).removeprefix("torch.")
        return array.data_ptr(), array.shape, kind, array.is_contiguous(), array.get_device()

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
    def __init__(self, index: int) -> None:
        import cupy

        self.cupy, self.index = cupy, index

    def look(self, array: Any) -> Looked:
        memory, contiguous = array.data, array.flags.c_contiguous
        return memory.ptr, array.shape, array.dtype.name, contiguous, memory.device_id

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
            stack.enter_context(cuda.ExternalStream(stream, self.index))
        return stack


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
