"""The CPU: memory is the host's own, and a launch is a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from tilewright.environment import cpu_cores, cpu_model, memory_bytes
from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, HostArray, Kernel, Result
from tilewright.runtime.device import CPU, Device
from tilewright.runtime.inventory import Found
from tilewright.runtime.recorder import Recorder
from tilewright.trace import Event


def missing(device: Device) -> str | None:
    """A CPU is always there."""
    return None


def open_runtime(device: Device, memory: str) -> CpuRuntime:
    return CpuRuntime()


def inventory() -> Iterator[Found]:
    from tilewright.fuse.cpu.build import host

    try:
        vectors = f"vectors: {host().level}"
    except TilewrightError as error:
        vectors = str(error)
    yield Found(
        str(CPU), cpu_model(), processors=cpu_cores(), memory_bytes=memory_bytes(), details=vectors
    )


class CpuRuntime(Recorder[None]):
    name = str(CPU)
    recording_disturbs = False
    clock = "the host's clock around each layer's computation"

    def describe(self) -> str:
        return f"{cpu_model()}, {cpu_cores()} cores"

    def allocate(self, shape: Shape) -> Buffer:
        return np.empty(shape, np.float32)

    def upload(self, array: HostArray) -> Buffer:
        return array

    def download(self, buffer: Buffer) -> HostArray:
        return np.asarray(buffer)

    def build(
        self, name: str, function: Callable[..., Result], parts: tuple[tuple[str, ...], ...] = ()
    ) -> Kernel[Result]:
        return Kernel(name, function, parts)

    def launch(self, kernel: Kernel[Result], *arguments: object, layers: tuple[str, ...]) -> Result:
        trace = self.trace
        if trace is None or not kernel.parts:
            return self.by_host("kernel", kernel.name, layers, 0, kernel.function, *arguments)
        start = trace.now()
        result = kernel.function(*arguments)
        end = trace.now()
        shares = np.asarray(result, np.float64)
        shares /= max(1.0, shares.sum())
        for part, length in zip(kernel.parts, shares * (end - start), strict=True):
            name = f"{kernel.name}_{'_'.join(part)}"
            trace.add(Event("kernel", name, start, start + float(length), part))
            start += float(length)
        return result

    def synchronise(self) -> None:
        pass
