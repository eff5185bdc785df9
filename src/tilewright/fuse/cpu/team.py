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
# Workers' scratch memory begins at pages, which the system gives by the first to write: 4 KiB.
PAGE_FLOATS = 1024
# And lies so far apart. A core that goes through its memory in large steps has what would come next
# fetched ahead, also beyond the end: where that is another core's, it has to get it back each time.
# Two cores of an AMD EPYC of the fifth generation took 16 images of `strided` each in 5.4 us an
# image with 256 KiB between, one of them 5.9 with 192, 7.2 with 64 and 7.8 with none (2026-11-19).
APART_FLOATS = 2**16
# Whether the system lets threads be put on cores, as Linux does; elsewhere it places them itself.
PLACED = hasattr(os, "sched_setaffinity")


class Helper:
    """A thread on a core, asleep until woken."""

    def __init__(
        self, tickets: Tickets, control: NDArray[np.int64], worker: int, core: int
    ) -> None:
        self.tickets, self.control, self.core = tickets, control, core
        self.arguments = (address(control), worker, PATIENCE)
        self.calls: SimpleQueue[bool] = SimpleQueue()
        self.thread = threading.Thread(target=self._live, name=f"tilewright-{core}", daemon=True)
        self.thread.start()

    def wake(self) -> None:
        """Have it look for tickets from now on; it may find none.

        One call is always waiting for a helper that is looking: when it has lost its patience it
        looks once more, and a job that comes just then is not missed.
        """
        if self.calls.empty():
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
    """What one call works in: counters of the clock's ticks, scratch memory for every worker, the
    caller's first with slots of images before it (other workers find theirs, if they have any, at
    the end of the one's before), and a control block for when it is on its own.

    The system gives memory page by page when it is first written to: what no helper works in costs
    nothing.
    """

    def __init__(self, floats: int, slots: int, parts: int, workers: int) -> None:
        stride = -(-floats // PAGE_FLOATS) * PAGE_FLOATS + APART_FLOATS
        self.ticks = np.zeros(parts, np.int64)
        before = -(-slots // PAGE_FLOATS) * PAGE_FLOATS
        self.scratch = aligned(before + stride * workers, np.float32)
        self.control = aligned(CONTROL_WORDS, np.int64)
        self.control_address = address(self.control)
        self.arguments = (address(self.ticks), address(self.scratch) + 4 * before, 4 * stride)


class Team:
    """The helpers on a set of cores. One call at a time has their help; others do without."""

    def __init__(self, cores: tuple[int, ...]) -> None:
        self.tickets = Tickets()
        self.cores, self.workers = max(1, len(cores)), 1 + len(cores)
        self.control = aligned(CONTROL_WORDS, np.int64)
        self.control_address = address(self.control)
        self.helpers = [
            Helper(self.tickets, self.control, 1 + index, core) for index, core in enumerate(cores)
        ]

    def work(self, jobs: tuple[Job, ...], memory: Memory, images: int, out: int) -> None:
        """Do jobs one after the other, with the help of others where they are free.

        Numbers are addresses. What lies there must be kept until this returns or raises; nothing is
        written to it after that, whenever a signal's handler raises.
        """
        alone = memory.control_address
        for job in jobs:
            together = alone
            if job.helpers and self.helpers:
                together = self.control_address
                self._wake(job.helpers)
            self.tickets.lead(
                together, alone, job.address, job.tickets, images, out, *memory.arguments
            )

    def _wake(self, helpers: int) -> None:
        here = _current_core()
        for helper in self.helpers:
            if helper.core != here:
                helper.wake()
                helpers -= 1
                if not helpers:
                    return

    def end(self) -> None:
        helpers, self.helpers = self.helpers, []
        for helper in helpers:
            helper.end()


def team() -> Team:
    """The team of the cores that the calling thread may use, as of its first call."""
    try:
        found: Team = _own.team
    except AttributeError:
        cores = os.sched_getaffinity(0) if PLACED else range(os.cpu_count() or 1)
        found = _own.team = _team(frozenset(cores))
    return found


def _team(cores: frozenset[int]) -> Team:
    found = _teams.get(cores)
    if found is None:
        made = Team(tuple(sorted(cores)) if len(cores) > 1 else ())
        found = _teams.setdefault(cores, made)
        if found is not made:  # another thread was quicker
            made.end()
    return found


@atexit.register
def _end() -> None:
    for each in _teams.values():
        each.end()


def _start_anew() -> None:
    """The helpers of a process do not live on in its children."""
    _teams.clear()
    _own.__dict__.clear()


_own = threading.local()
_teams: dict[frozenset[int], Team] = {}
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
_current_core: Callable[[], int] = ctypes.CDLL(None).sched_getcpu if PLACED else lambda: 0
