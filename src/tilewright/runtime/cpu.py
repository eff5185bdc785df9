"""The CPU: memory is the host's own, and a launch is a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.environment import cpu_cores, cpu_model
from tilewright.model.layers import Shape
from tilewright.runtime import Kernel
from tilewright.trace import Event, Trace


class CpuRuntime:
    name = "cpu"

    def __init__(self) -> None:
        self.trace = Trace()

    def describe(self) -> str:
        return f"{cpu_model()}, {cpu_cores()} cores"

    def allocate(self, shape: Shape) -> NDArray[np.float32]:
        return np.empty(shape, np.float32)

    def upload(self, array: NDArray[Any]) -> NDArray[Any]:
        return array

    def download(self, buffer: NDArray[np.float32]) -> NDArray[np.float32]:
        return buffer

    def build(self, name: str, function: Callable[..., Any]) -> Kernel:
        return Kernel(name, function)

    def launch(self, kernel: Kernel, *arguments: Any, layers: tuple[str, ...]) -> Any:
        trace = self.trace
        start = trace.now()
        result = kernel.function(*arguments)
        trace.add(Event("kernel", kernel.name, start, trace.now(), layers))
        return result

    def synchronise(self) -> None:
        pass
