"""The devices, one contract: a rung is written once against it and never asks where it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import DTypeLike, NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.runtime.dialect import Block, Grid, Limits, Source
from tilewright.trace import Cost, Trace

# A device's own array type: a NumPy array on the CPU, a framework's tensor elsewhere.
Buffer = Any
# A point in a device's work that can be waited for.
Mark = Any


class DeviceFault(TilewrightError):
    """A device, or its driver, did not do what it was asked for; what was done before stands."""


def device_number(device: str) -> int:
    """The index in `cuda:1`; the first device of its kind without one."""
    return int(device.partition(":")[2] or 0)


@dataclass(frozen=True)
class Kernel:
    """Something built that can be launched. Its name is what traces and profiles show.

    A kernel of several `parts`, each with its layers, returns how long each took, in any unit;
    the time of a launch is then recorded part by part in that proportion.
    """

    name: str
    function: Callable[..., Any]
    parts: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class GpuKernel:
    """A compiled kernel. `constant` is its constant memory, a buffer to write to, if it has any.

    `shared_bytes` is the shared memory it is launched with, besides what its text declares.
    """

    name: str
    block: Block
    handle: Any
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

    def upload(self, array: NDArray[Any]) -> Buffer:
        """Host to device; recorded as a copy where anything is copied."""

    def download(self, buffer: Buffer) -> NDArray[Any]:
        """Device to host; waits for the work that fills the buffer."""

    def synchronise(self) -> None:
        """Wait until everything launched is done and recorded."""


class FunctionRuntime(Runtime, Protocol):
    """A device whose kernels are functions that Python can call."""

    def build(
        self, name: str, function: Callable[..., Any], parts: tuple[tuple[str, ...], ...] = ()
    ) -> Kernel:
        """Make a kernel of what a rung describes."""

    def launch(self, kernel: Kernel, *arguments: Any, layers: tuple[str, ...]) -> Any:
        """Run a kernel and record it with the layers it computes."""


class GpuRuntime(Runtime, Protocol):
    """A device with memory of its own that compiles kernels: CUDA, or OpenCL of any maker.

    Opened as `managed`, all its buffers lie in one address space shared with the host: nothing is
    copied, and pages move when they are touched. Buffers can be sliced along their first axis,
    reshaped, and assigned to each other as a whole (`a[:] = b`).
    """

    limits: Limits

    def write(self, buffer: Buffer, array: NDArray[Any]) -> None:
        """Host to device, into memory that is there; the array may be changed afterwards."""

    def compile(self, source: Source) -> GpuKernel:
        """A kernel for this device; DoesNotFit if it needs more than the device has."""

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Any],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        """Launch a kernel over a grid of blocks. Arguments are buffers and whole numbers."""

    # What overlapping copies need: two more lanes of work, and marks between lanes.

    def pinned(self, shape: Shape, dtype: DTypeLike) -> NDArray[Any]:
        """Host memory that the device can copy from and to by itself."""

    def is_pinned(self, array: NDArray[Any]) -> bool:
        """Whether the device can copy from this array by itself."""

    def send(self, buffer: Buffer, array: NDArray[Any], after: Mark | None) -> Mark:
        """Copy pinned memory in, on a lane of its own, once the mark is reached."""

    def fetch(self, array: NDArray[Any], buffer: Buffer, after: Mark | None) -> Mark:
        """Copy out to pinned memory, on a lane of its own, once the mark is reached."""

    def mark(self) -> Mark:
        """Reached when all kernels launched so far are done."""

    def hold(self, mark: Mark) -> None:
        """Kernels launched from here on wait for the mark."""

    def wait(self, mark: Mark) -> None:
        """The host waits for the mark."""
