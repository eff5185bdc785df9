"""The runtimes by the kind of their device. Adding one is a module and a case here.

Libraries of devices are imported when they are asked for, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, assert_never

from tilewright.runtime import GpuRuntime, Runtime
from tilewright.runtime.device import Device, Kind
from tilewright.runtime.dialect import Limits

if TYPE_CHECKING:
    from tilewright.runtime.inventory import Found


class Backend(Protocol):
    """What the module of a runtime has."""

    def missing(self, device: Device) -> str | None:
        """Why this device cannot be used, and how to get it; None if it can."""

    def open_runtime(self, device: Device, memory: str) -> Runtime:
        """The device, ready to run under a memory plan."""

    def inventory(self) -> Iterator[Found]:
        """What is here of its kind, or one entry that says why nothing is."""


class GpuBackend(Backend, Protocol):
    def open_runtime(self, device: Device, memory: str) -> GpuRuntime: ...

    def device_limits(self, device: Device) -> Limits:
        """What a device that is here gives a kernel."""


def backend(kind: Kind) -> Backend:
    if kind == "cpu":
        from tilewright.runtime import cpu

        return cpu
    return gpu_backend(kind)


def gpu_backend(kind: Kind) -> GpuBackend:
    assert kind != "cpu", "the CPU has no memory of its own"
    match kind:
        case "opencl":
            from tilewright.runtime import opencl

            return opencl
        case "cuda":
            from tilewright.runtime import cuda

            return cuda
    assert_never(kind)
