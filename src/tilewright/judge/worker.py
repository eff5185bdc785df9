"""The process that kernels of strangers run in: it does what the judge asks, and knows nothing.

    python -m tilewright.judge.worker REQUESTS ANSWERS WINDOW JUDGE   (numbers of open files)

No network, no expected values, no clock that counts. Data comes and goes through the window,
memory that the judge has mapped, too.
"""

from __future__ import annotations

import mmap
import os
import socket
import sys
from pathlib import Path
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.judge import protocol
from tilewright.judge.protocol import Class, Piece
from tilewright.judge.sandbox import enter
from tilewright.runtime import Buffer, DeviceFault, GpuKernel, GpuRuntime, pocl
from tilewright.runtime.complaints import KernelDoesNotCompile
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.runtime.registry import gpu_backend
from tilewright.trace import Trace

COMPLAINTS = 100
CLASSES: tuple[tuple[type[Exception], Class], ...] = (
    (DoesNotFit, "DoesNotFit"),
    (KernelDoesNotCompile, "KernelDoesNotCompile"),
    (DeviceFault, "DeviceFault"),
    (TilewrightError, "TilewrightError"),
    (MemoryError, "MemoryError"),
    (Exception, "Lost"),
)


def main(requests: int, answers: int, window: int, judge: int) -> None:
    begin = protocol.decode_begin(_content(requests))
    kept = None if begin.kept is None else Path(begin.kept)
    with socket.socket(fileno=judge) as other:
        enter(Path(begin.scratch), kept, begin.native, begin.allowance, other)
    try:
        device = Device.parse(begin.device)
        if begin.native:
            pocl.remember()  # the judge has tried it; nobody can in here
        runtime = gpu_backend(device.kind).open_runtime(device, "resident")
        ready = protocol.Ready(runtime.limits, runtime.describe())
    except Exception as error:  # of any library that drives a GPU
        _send(answers, _failed(protocol.START, error))
        return
    _send(answers, ready)
    worker = Worker(runtime, np.frombuffer(mmap.mmap(window, begin.window), np.uint8))
    while True:
        answer = worker.serve(protocol.decode_request(_content(requests)))
        if answer is not None:
            _send(answers, answer)


class Worker:
    """Buffers and kernels by the numbers that the judge has given them."""

    def __init__(self, runtime: GpuRuntime, window: NDArray[np.uint8]) -> None:
        self.runtime, self.window = runtime, window
        self.buffers: dict[int, Buffer] = {}  # of bytes
        self.constants: dict[int, Buffer] = {}  # written as a whole
        self.kernels: dict[int, GpuKernel] = {}
        self.error: Exception | None = None  # the first, until somebody asks

    def serve(self, request: protocol.Request) -> protocol.Answer | None:
        try:
            # What comes after something that failed would only fail, too.
            if self.error is None or isinstance(request, protocol.Free):
                self._do(request)
        except Exception as error:  # of any library that drives a GPU
            self.error = self.error or error
        if not isinstance(request, protocol.Answered):
            return None
        first, self.error = self.error, None
        if first is not None:
            return _failed(request.ticket, first)
        return protocol.Done(request.ticket, self._recorded())

    def _do(self, request: protocol.Request) -> None:
        runtime = self.runtime
        match request:
            case protocol.Allocate():
                self.buffers[request.buffer] = self._allocate(request)
            case protocol.Free():
                for number in request.buffers:
                    self.buffers.pop(number, None)
            case protocol.Write():
                data = self.window[request.place : request.place + request.piece.size]
                if request.piece.buffer in self.constants:
                    runtime.write(self.constants[request.piece.buffer], data.view(np.float32))
                else:
                    runtime.write(self._piece(request.piece), data)
            case protocol.Read():
                data = runtime.download(self._piece(request.piece))
                self.window[request.place : request.place + request.piece.size] = data
            case protocol.Copy():
                self._piece(request.target)[:] = self._piece(request.source)
            case protocol.Compile():
                kernel = self.kernels[request.kernel] = runtime.compile(request.source)
                if kernel.constant is not None:
                    self.constants[request.constant] = kernel.constant
            case protocol.Launch():
                kernel = self.kernels[request.kernel]
                given = [a if isinstance(a, int) else self._piece(a) for a in request.arguments]
                runtime.enqueue(kernel, request.grid, given, ())
            case protocol.Record():
                runtime.trace = Trace() if request.on else None
            case protocol.Flush():
                _forget_persisting()
            case protocol.Wait():
                runtime.synchronise()
            case _:
                assert_never(request)

    def _recorded(self) -> float:
        """What kernels have taken since the recording began."""
        trace = self.runtime.trace
        return sum(max(0.0, event.seconds) for event in trace.of("kernel")) if trace else 0.0

    def _allocate(self, request: protocol.Allocate) -> Buffer:
        if request.shared is None:
            return self.runtime.allocate((request.size,), np.uint8)
        from tilewright.runtime.opencl_runtime import OpenClRuntime

        assert isinstance(self.runtime, OpenClRuntime)  # no other runs where the window is
        return self.runtime.over(self.window[request.shared : request.shared + request.size])

    def _piece(self, piece: Piece) -> Buffer:
        return self.buffers[piece.buffer][piece.offset : piece.offset + piece.size]


def _forget_persisting() -> None:
    """Kernels can ask CUDA to keep lines in its second cache beyond their end."""
    from cuda.bindings import driver

    driver.cuCtxResetPersistingL2Cache()


def _failed(ticket: int, error: Exception) -> protocol.Failed:
    kind = next(name for each, name in CLASSES if isinstance(error, each))
    words = f"{type(error).__name__}: {error}" if kind == "Lost" else str(error)
    told = error.messages[:COMPLAINTS] if isinstance(error, KernelDoesNotCompile) else ()
    complaints = [protocol.Complaint(each.line, each.column, each.text) for each in told]
    return protocol.Failed(ticket, kind, words[: protocol.WORDS], complaints)


def _content(requests: int) -> bytes:
    (size,) = protocol.LENGTH.unpack(_exactly(requests, protocol.LENGTH.size))
    return _exactly(requests, size)


def _exactly(requests: int, size: int) -> bytes:
    held = bytearray()
    while len(held) < size:
        part = os.read(requests, size - len(held))
        if not part:
            sys.exit()  # the judge is gone
        held += part
    return bytes(held)


def _send(answers: int, answer: protocol.Answer) -> None:
    left = memoryview(protocol.frame(answer))
    while left:
        left = left[os.write(answers, left) :]


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
