"""Arrays in a GPU's memory, whoever's: where they lie, without a copy, and new ones of their kind.

Of an array a library is asked for its address and for facts: shape, type, GPU, and whether it is
contiguous. They are kept as the library has them, and known again when the next batch comes: to put
them into words takes longer than a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, NamedTuple, Protocol

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.serving.host import on_host

UINT8, FLOAT32 = "uint8", "float32"
# What a library says of an array besides its address.
Facts = Any
LEGACY = 1  # the default stream, where 0 would be no stream


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
