"""A worker's office: the numbers of its buffers and kernels, the window, and what is on its way.

Launches and copies in are sent without waiting. Where a kernel can end the process each launch is
waited for, so that it is known which one did.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.judge.allowance import Allowance
from tilewright.judge.connection import WINDOW, Connection
from tilewright.judge.protocol import (
    Allocate,
    Compile,
    Free,
    Launch,
    Piece,
    Read,
    Wait,
    Write,
    ticket,
)
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import Source

# Launches before the worker is waited for: each has its time, so that one that hangs takes that of
# all. Where a kernel can end the process, each is waited for, so that it is known which one did.
QUEUED, QUEUED_NATIVE = 4, 1
ALIGNMENT = 4096  # of what lies in the window
LATE = "it ran longer than"


def is_native(device: Device) -> bool:
    """Whether kernels are machine code of the process that launches them."""
    if device.kind == "cuda":
        return False
    from tilewright.runtime import opencl
    from tilewright.runtime.pocl import is_pocl

    if reason := opencl.missing(device):
        raise TilewrightError(f"device '{device}': {reason}")
    found = opencl.devices()[device.index]
    return is_pocl(found) or opencl.is_simulator(found)


@dataclass(frozen=True)
class Memory:
    """A buffer in the worker."""

    number: int
    size: int


class Office:
    """A worker and what is on its way to it."""

    def __init__(
        self,
        device: Device,
        allowance: Allowance,
        kept: Path | None = None,
        trust: bool = False,
        shared: int = 0,
    ) -> None:
        """`shared` is the room for buffers that lie where the judge sees them."""
        self.allowance = allowance
        self.native = is_native(device)
        self.queued = QUEUED_NATIVE if self.native else QUEUED
        self.connection = Connection(device, self.native, allowance, kept, trust, shared)
        self.shared = WINDOW  # where the next such buffer begins
        self.doing = self.connection.doing
        self.doing.otherwise = "before any launch"
        self.numbers = 0
        self.filled = 0  # of the window
        self.freed: list[int] = []

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def memory(self, size: int) -> Memory:
        if self.freed:
            freed, self.freed = self.freed, []
            self.connection.tell(Free(freed))
        made = Memory(self.number(), size)
        self.connection.tell(Allocate(made.number, max(1, size)))
        weakref.finalize(made, self.freed.append, made.number)
        return made

    def share(self, size: int) -> tuple[Memory, NDArray[np.uint8]]:
        """A buffer that the judge can look at and change while the worker stands still."""
        place, self.shared = self.shared, self.shared + -(-size // ALIGNMENT) * ALIGNMENT
        assert self.shared <= len(self.connection.window)
        made = Memory(self.number(), size)
        self.connection.tell(Allocate(made.number, size, place))
        return made, self.connection.window[place : place + size]

    def write(self, piece: Piece, data: NDArray[np.uint8]) -> None:
        for first, part in _parts(piece):
            if self.filled + part.size > WINDOW:
                self.wait()
            self.connection.window[self.filled : self.filled + part.size] = data[
                first : first + part.size
            ]
            self.connection.tell(Write(part, self.filled))
            self.filled += -(-part.size // ALIGNMENT) * ALIGNMENT

    def read(self, piece: Piece) -> NDArray[np.uint8]:
        found = np.empty(piece.size, np.uint8)
        for first, part in _parts(piece):
            self._ask(Read(ticket(), part, 0))
            found[first : first + part.size] = self.connection.window[: part.size]
        return found

    def compile(self, kernel: int, constant: int, source: Source) -> None:
        self.wait()  # what it is doing until then is something else
        self.doing.otherwise = f"while compiling {source.name}"
        limit = self.allowance.compile_seconds
        self.connection.ask(
            Compile(ticket(), kernel, constant, source), limit, "compiling took longer than"
        )
        self.doing.otherwise = "after compiling"

    def launch(self, request: Launch, words: str) -> None:
        self.doing.running.append(words)
        self.connection.tell(request)
        if len(self.doing.running) >= self.queued:
            self.wait()

    def wait(self) -> float:
        """Until all is done; what a GPU's kernels took by its own clock, if that is recorded."""
        return self._ask(Wait(ticket())) if self.doing.running or self.filled else 0.0

    def nothing(self) -> float:
        """Seconds that it takes to ask for nothing and to be answered."""
        start = time.perf_counter()
        self._ask(Wait(ticket()))
        return time.perf_counter() - start

    def _ask(self, request: Read | Wait) -> float:
        if isinstance(request, Read) and self.filled:
            self._ask(Wait(ticket()))  # the window is the answer's
        seconds = self.allowance.seconds * max(1, len(self.doing.running))
        try:
            return self.connection.ask(request, seconds, LATE)
        finally:
            self.filled = 0
            if self.doing.running:
                self.doing.otherwise = f"after {self.doing.running[-1]}"
            self.doing.running.clear()


def _parts(piece: Piece) -> list[tuple[int, Piece]]:
    """A piece as pieces that fit the window, with where each begins."""
    return [
        (first, Piece(piece.buffer, piece.offset + first, min(WINDOW, piece.size - first)))
        for first in range(0, piece.size, WINDOW)
    ]
