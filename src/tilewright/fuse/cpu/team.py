"""The threads that work on a network: the caller, and a helper on every other core.

Waking a thread takes longer than a small network does, so a helper that has had work waits for more
in machine code, looking again and again, before it goes to sleep (`PATIENCE`). A helper belongs to
a core, and those on other cores than the caller's are woken: beside a caller that goes on computing
a thread can wait for milliseconds before the system moves it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable
from functools import cache
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.arrays import address, aligned
from tilewright.fuse.cpu.shares import Job
from tilewright.fuse.cpu.tickets import CONTROL_WORDS, Tickets

# Looks for work before a helper goes to sleep: 130 us. Calls of a single image one after the other
# took 46 us each (cifar10, 2 cores of an AMD EPYC, 2026-11-15), and 82 us with helpers that sleep
# at once.
PATIENCE = 5_000
# Whether the system lets threads be put on cores, as Linux does; elsewhere it places them itself.
PLACED = hasattr(os, "sched_setaffinity")


class Helper:
    """A thread on a core, asleep until woken."""

    def __init__(self, tickets: Tickets, control: int, worker: int, core: int) -> None:
        self.tickets, self.core = tickets, core
        # Up while the helper looks for tickets; alone in its cache line.
        self.flag = aligned(8, np.int64)
        self.arguments = (control, worker, PATIENCE, address(self.flag))
        self.calls: SimpleQueue[bool] = SimpleQueue()
        self.thread = threading.Thread(target=self._live, name=f"tilewright-{core}", daemon=True)
        self.thread.start()

    def wake(self) -> None:
        """Have it look for tickets, unless it does."""
        if not self.flag[0]:
            self.calls.put(True)

    def end(self) -> None:
        self.calls.put(False)
        self.thread.join()

    def _live(self) -> None:
        if PLACED:
            os.sched_setaffinity(0, {self.core})
        while self.calls.get():
            self.tickets.help(*self.arguments)


class Memory:
    """What one call works in: scratch memory, counters of the clock's ticks, and a control block
    for when it is on its own."""

    def __init__(self, floats: int, parts: int) -> None:
        self.floats = floats
        self.ticks = np.zeros(parts, np.int64)
        self.scratch = aligned(floats, np.float32)
        self.control = aligned(CONTROL_WORDS, np.int64)
        self.addresses = (address(self.ticks), address(self.scratch))
        self.control_address = address(self.control)


class Team:
    """The helpers on a set of cores. One call at a time has their help; others do without."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self.tickets = Tickets()
        self.cores = max(1, len(cores))
        self.busy = threading.Lock()
        self.control = aligned(CONTROL_WORDS, np.int64)
        self.control_address = address(self.control)
        self.helpers = [
            Helper(self.tickets, self.control_address, 1 + index, core)
            for index, core in enumerate(cores)
        ]
        # Scratch memory of each worker; the first, the caller, brings its own.
        self.memory: list[NDArray[np.float32]] = []
        self.floats = 0
        self.places = np.zeros(1 + len(cores), np.int64)
        self.places_address = address(self.places)
        atexit.register(self.end)

    def work(self, job: Job, memory: Memory, images: int, out: int) -> None:
        """Do a job, with the help of others if they are free. Numbers are addresses."""
        arguments = (job.address, job.tickets, images, out, *memory.addresses, self.places_address)
        if not job.helpers or not self.helpers or not self.busy.acquire(blocking=False):
            self.tickets.announce(memory.control_address, *arguments)
            self.tickets.work(memory.control_address)
            return
        try:
            if self.floats < memory.floats:
                self._make_room(memory.floats)
            self.tickets.announce(self.control_address, *arguments)
            self._wake(job.helpers)
            self.tickets.work(self.control_address)
        finally:
            self.busy.release()

    def _make_room(self, floats: int) -> None:
        """Scratch memory for the helpers, as much as the caller has."""
        self.memory = [aligned(floats, np.float32) for _ in self.helpers]
        self.places[1:] = [address(scratch) for scratch in self.memory]
        self.floats = floats

    def _wake(self, helpers: int) -> None:
        here = _current_core()
        for helper in self.helpers:
            if helper.core != here:
                helper.wake()
                helpers -= 1
                if not helpers:
                    return

    def end(self) -> None:
        for helper in self.helpers:
            helper.end()
        self.helpers = []


def team() -> Team:
    """The team of the cores that the calling thread may use, as of its first call."""
    try:
        found: Team = _own.team
    except AttributeError:
        cores = os.sched_getaffinity(0) if PLACED else range(os.cpu_count() or 1)
        found = _own.team = _team(frozenset(cores))
    return found


@cache
def _team(cores: frozenset[int]) -> Team:
    return Team(tuple(sorted(cores)) if len(cores) > 1 else ())


def _start_anew() -> None:
    """The helpers of a process do not live on in its children."""
    _team.cache_clear()
    _own.__dict__.clear()


_own = threading.local()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
_current_core: Callable[[], int] = ctypes.CDLL(None).sched_getcpu if PLACED else lambda: 0
