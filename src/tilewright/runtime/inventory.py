"""What devices this machine has, and for those it has not, why and how to get them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.runtime.dialect import Limits


@dataclass(frozen=True)
class Device:
    """A device by the name that `--device` takes.

    `problem` is why it cannot be used and how that changes. `limits` are those that kernels keep
    to; the CPU has none. `managed` says whether it shares memory with the host; where there is no
    other memory, that is no question (None).
    """

    name: str
    model: str = ""
    problem: str | None = None
    simulator: bool = False
    processors: int = 0
    memory_bytes: int = 0
    limits: Limits | None = None
    managed: bool | None = None
    details: str = ""


def inventory() -> list[Device]:
    """The CPU, then every OpenCL device, then every CUDA GPU."""
    return [_cpu(), *_opencl(), *_cuda()]


def _cpu() -> Device:
    from tilewright.environment import cpu_cores, cpu_model, memory_bytes
    from tilewright.fuse.cpu.build import host

    try:
        vectors = f"vectors: {host().level}"
    except TilewrightError as error:
        vectors = str(error)
    return Device(
        "cpu", cpu_model(), processors=cpu_cores(), memory_bytes=memory_bytes(), details=vectors
    )


def _opencl() -> Iterator[Device]:
    from tilewright.runtime import opencl

    found = [] if opencl.unusable() else opencl.devices()
    if not found or opencl.is_simulator(found[0]):
        yield Device("opencl", problem=opencl.missing("opencl"))
    for index, device in enumerate(found):
        # A simulator is used only when it is named with its number.
        name = f"opencl:{index}" if index or opencl.is_simulator(device) else "opencl"
        limits = opencl.limits(device)
        yield Device(
            name,
            device.name.strip(),
            problem=opencl.missing(name),
            simulator=opencl.is_simulator(device),
            processors=limits.processors,
            memory_bytes=limits.memory_bytes,
            limits=limits,
            managed=opencl.shares_memory(device),
            # The version reads "OpenCL 3.0" and then whatever the maker likes to add.
            details=f"{device.platform.name.strip()}, {' '.join(device.version.split()[:2])}, "
            f"driver {device.driver_version.strip()}",
        )


def _cuda() -> Iterator[Device]:
    from tilewright.runtime import cuda

    if reason := cuda.missing("cuda"):
        yield Device("cuda", problem=reason)
        return
    index = 0
    while cuda.missing(name := f"cuda:{index}") is None:
        limits, gpu = cuda.limits(index), cuda.gpu(index)
        yield Device(
            name,
            gpu.name,
            processors=limits.processors,
            memory_bytes=limits.memory_bytes,
            limits=limits,
            managed=True,
            details=f"compute capability {gpu.capability / 10}, {cuda.versions()}",
        )
        index += 1
