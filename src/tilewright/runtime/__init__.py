"""The devices, one contract: a rung is written once against it and never asks where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright.errors import TilewrightError
from tilewright.runtime.dialect import Block, Grid, Limits, Source
from tilewright.trace import Cost, Trace

if TYPE_CHECKING:
    from tilewright.model.layers import Shape

# In the host's memory: pixels, values or packed parameters.
HostArray = NDArray[Any]
Result = TypeVar("Result")


class Element(Protocol):
    @property
    def itemsize(self) -> int:
        """Bytes."""


class Buffer(Protocol):
    """Memory of a device with a shape: a NumPy array on the CPU, a library's own type elsewhere.

    It can be sliced along its first axis, reshaped, and assigned to another as a whole
    (`a[:] = b`).
    """

    @property
    def shape(self) -> Shape: ...

    @property
    def dtype(self) -> Element: ...

    @property
    def nbytes(self) -> int: ...

    def __len__(self) -> int: ...

    def __getitem__(self, piece: slice, /) -> Self: ...

    def __setitem__(self, piece: slice, other: Self, /) -> None: ...

    def reshape(self, images: int, /, *shape: int) -> Self: ...


class Mark(Protocol):
    """A point in a device's work that can be waited for: what it is, its runtime knows alone."""


def are_pixels(buffer: Buffer) -> bool:
    """Bytes, of which the input layer makes values; everything behind it is float32."""
    return buffer.dtype.itemsize == 1


class DeviceFault(TilewrightError):
    """A device, or its driver, did not do what it was asked for; what was done before stands."""


@dataclass(frozen=True)
class Kernel(Generic[Result]):
    """Something built that can be launched. Its name is what traces and profiles show.

    A kernel of several `parts`, each with its layers, returns how long each took, in any unit;
    the time of a launch is then recorded part by part in that proportion.
    """

    name: str
    function: Callable[..., Result]
    parts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class GpuKernel:
    """A compiled kernel. `constant` is its constant memory, a buffer to write to, if it has any.

    `shared_bytes` is the shared memory it is launched with, besides what its text declares.
    """

    name: str
    block: Block
    handle: object  # what it is, its runtime knows alone
    constant: Buffer | None = None
    shared_bytes: int = 0


class Runtime(Protocol):
    """A device. Work may be asynchronous: only after `synchronise` is the trace complete."""

    name: str
    trace: Trace | None  # None: nothing is recorded
    recording_disturbs: bool  # whether a run that is recorded is slower than one that is not
    clock: str  # where recorded times come from, in words

    def describe(self) -> str:
        """The device in words: model and what matters of its size."""

    def allocate(self, shape: Shape) -> Buffer:
        """An uninitialised float32 buffer."""

    def upload(self, array: HostArray) -> Buffer:
        """Host to device; recorded as a copy where anything is copied."""

    def download(self, buffer: Buffer) -> HostArray:
        """Device to host; waits for the work that fills the buffer."""

    def synchronise(self) -> None:
        """Wait until everything launched is done and recorded."""


class FunctionRuntime(Runtime, Protocol):
    """A device whose kernels are functions that Python can call."""

    def build(
        self, name: str, function: Callable[..., Result], parts: tuple[tuple[str, ...], ...] = ()
    ) -> Kernel[Result]:
        """Make a kernel of what a rung describes."""

    def launch(self, kernel: Kernel[Result], *arguments: object, layers: tuple[str, ...]) -> Result:
        """Run a kernel and record it with the layers it computes."""


@runtime_checkable
class Pins(Runtime, Protocol):
    """A device that copies by itself from memory of the host's that stays where it is."""

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        """Host memory that the device can copy from and to by itself."""

    def is_pinned(self, array: HostArray) -> bool:
        """Whether the device can copy from this array by itself."""


@runtime_checkable
class GpuRuntime(Pins, Protocol):
    """A device with memory of its own that compiles kernels: CUDA, or OpenCL of any maker.

    Opened as `managed`, all its buffers lie in one address space shared with the host: nothing is
    copied, and pages move when they are touched.
    """

    limits: Limits

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Buffer:
        """An uninitialised buffer."""

    def write(self, buffer: Buffer, array: HostArray) -> None:
        """Host to device, into memory that is there; the array may be changed afterwards."""

    def compile(self, source: Source) -> GpuKernel:
        """A kernel for this device; DoesNotFit if it needs more than the device has."""

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Buffer | int],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        """Launch a kernel over a grid of blocks. Arguments are buffers and whole numbers."""

    # What overlapping copies need: two more lanes of work, and marks between lanes.

    def send(self, buffer: Buffer, array: HostArray, after: Mark | None) -> Mark:
        """Copy pinned memory in, on a lane of its own, once the mark is reached."""

    def fetch(self, array: HostArray, buffer: Buffer, after: Mark | None) -> Mark:
        """Copy out to pinned memory, on a lane of its own, once the mark is reached."""

    def mark(self) -> Mark:
        """Reached when all kernels launched so far are done."""

    def hold(self, mark: Mark) -> None:
        """Kernels launched from here on wait for the mark."""

    def wait(self, mark: Mark) -> None:
        """The host waits for the mark."""
