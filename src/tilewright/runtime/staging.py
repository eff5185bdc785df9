"""Copies of memory that a device cannot reach by itself: in pieces, through some that it can.

From pinned memory an H200 copies at 54 GB/s, from any other the driver does it at 6: it has one
thread that copies into pinned memory of its own first. Here all cores do that, piece by piece,
while the device copies the piece before. Pinned memory is the whole machine's: however large an
array is, the pieces are few.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from tilewright.environment import cpu_cores
from tilewright.runtime import HostArray, Mark
from tilewright.threads import share

Bytes = NDArray[np.uint8]
# What is smaller goes as it is: the device is done before there is anything to do side by side. On
# an H200 (2026-11-15) pieces reached 5.0, 9.2 and 10.9 GB/s of 4, 16 and 64 MiB, the driver by
# itself 10.9, 11.3 and 7.2.
LEAST_BYTES = 32 * 2**20
PIECE_BYTES, PIECES = 8 * 2**20, 3
# More threads than these do not make memory any faster.
MOST_THREADS = 8
# Begins a copy between a piece and the device's memory from some byte on; the mark is its end.
Begin = Callable[[int, Bytes], Mark]
Wait = Callable[[Mark], None]


class Staging:
    """A few pieces of pinned memory, for one copy at a time."""

    def __init__(self, pieces: list[Bytes]) -> None:
        self.pieces = pieces
        self.lock = threading.Lock()

    def send(self, array: HostArray, begin: Begin, wait: Wait) -> None:
        """Into the device; all of it is there when this returns."""
        content = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        with self.lock:
            busy: deque[Mark] = deque()
            for first, piece, part in self._parts(content):
                if len(busy) == len(self.pieces):
                    wait(busy.popleft())
                copy(piece, part)
                busy.append(begin(first, piece))
            while busy:  # the next one takes the same pieces
                wait(busy.popleft())

    def fetch(self, array: HostArray, begin: Begin, wait: Wait) -> None:
        """Out of the device, into a contiguous array."""
        with self.lock:
            coming: deque[tuple[Mark, Bytes, Bytes]] = deque()

            def collect() -> None:
                mark, piece, part = coming.popleft()
                wait(mark)
                copy(part, piece)

            for first, piece, part in self._parts(array.reshape(-1).view(np.uint8)):
                if len(coming) == len(self.pieces):
                    collect()
                coming.append((begin(first, piece), piece, part))
            while coming:
                collect()

    def _parts(self, content: Bytes) -> Iterator[tuple[int, Bytes, Bytes]]:
        """The first byte of each part, the pinned piece that it goes through, and the part."""
        size = len(self.pieces[0])
        for number, first in enumerate(range(0, len(content), size)):
            part = content[first : first + size]
            yield first, self.pieces[number % len(self.pieces)][: len(part)], part


def copy(target: HostArray, source: HostArray) -> None:
    """Between arrays of the host that are alike, by several cores if they are large."""
    if target.nbytes < LEAST_BYTES:
        target[:] = source
        return

    def part(first: int, last: int) -> None:
        target[first:last] = source[first:last]

    share(part, len(target), min(cpu_cores(), MOST_THREADS))
