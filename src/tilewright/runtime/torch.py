"""A device as PyTorch sees it, for the vendor rung: CPU, or a CUDA GPU timed by its own events."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import DTypeLike

from tilewright.environment import cpu_cores, cpu_model
from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, HostArray, Kernel, Result
from tilewright.runtime.device import Device
from tilewright.runtime.recorder import EventRecorder, TimingEvent
from tilewright.trace import DEVICE_TO_HOST, HOST_TO_DEVICE, Kind

# Made by a call that PyTorch gives no types.
TIMING_EVENT: Callable[..., TimingEvent] = partial(torch.cuda.Event, enable_timing=True)
# Of a kernel that counts cycles, which PyTorch has for its own tests.
WAIT_CYCLES: Callable[[int], None] = torch.cuda._sleep
CYCLES_A_SECOND = 2e9


class TorchRuntime(EventRecorder):
    def __init__(self, device: Device) -> None:
        super().__init__()
        self.device = torch.device(str(device))
        self.name = str(device)
        self.recording_disturbs = self.device.type == "cuda"
        by = "CUDA events" if self.device.type == "cuda" else "the host's clock"
        self.clock = f"{by} around each of PyTorch's calls"
        # The rung claims float32, but PyTorch would round a convolution's operands to TF32. The
        # switch is the process's; setting it around every launch would cost the rung time.
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cuda.matmul.allow_tf32 = False

    def describe(self) -> str:
        if self.device.type == "cuda":
            found = torch.cuda.get_device_properties(self.device)  # in the words of our own runtime
            return f"{found.name}, {found.multi_processor_count} multiprocessors"
        return f"{cpu_model()}, {cpu_cores()} cores"

    def allocate(self, shape: Shape) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=self.device)

    def upload(self, array: HostArray) -> torch.Tensor:
        host = torch.from_numpy(array)
        if self.device.type == "cpu":
            return host
        return self._timed("copy", HOST_TO_DEVICE, (), array.nbytes, lambda: host.to(self.device))

    def download(self, buffer: Buffer) -> HostArray:
        assert isinstance(buffer, torch.Tensor)
        if self.device.type == "cpu":
            return np.asarray(buffer.numpy())
        size = buffer.numel() * buffer.element_size()
        return np.asarray(self._timed("copy", DEVICE_TO_HOST, (), size, buffer.cpu).numpy())

    def pinned(self, shape: Shape, dtype: DTypeLike) -> HostArray:
        like = torch.from_numpy(np.empty(0, dtype))
        return np.asarray(torch.empty(shape, dtype=like.dtype, pin_memory=True).numpy())

    def is_pinned(self, array: HostArray) -> bool:
        return bool(torch.from_numpy(array).is_pinned())

    def build(
        self, name: str, function: Callable[..., Result], parts: tuple[tuple[str, ...], ...] = ()
    ) -> Kernel[Result]:
        return Kernel(name, function, parts)

    def launch(self, kernel: Kernel[Result], *arguments: object, layers: tuple[str, ...]) -> Result:
        with torch.inference_mode():
            work = partial(kernel.function, *arguments)
            return self._timed("kernel", kernel.name, layers, 0, work)

    def synchronise(self) -> None:
        """Wait for the GPU, then place its events on the host's clock."""
        if self.trace is not None and self.trace.collector is not None:
            torch.cuda.synchronize(self.device)
        if self.device.type == "cuda":
            self.read_events(torch.cuda.current_stream(self.device))

    def new_event(self) -> TimingEvent:
        return TIMING_EVENT()

    def elapsed(self, first: TimingEvent, last: TimingEvent) -> float:
        assert isinstance(first, torch.cuda.Event) and isinstance(last, torch.cuda.Event)
        return float(first.elapsed_time(last))

    def hold_back(self, seconds: float) -> None:
        WAIT_CYCLES(int(CYCLES_A_SECOND * seconds))

    def _timed(
        self, kind: Kind, name: str, layers: tuple[str, ...], size: int, work: Callable[[], Result]
    ) -> Result:
        if self.trace is None:
            return work()
        if self.device.type == "cpu":
            return self.by_host(kind, name, layers, size, work)
        stream = torch.cuda.current_stream(self.device)
        return self.timed(stream, kind, name, layers, size, work)
