"""Proofs of several rungs on one GPU at the same time, each in a process of its own.

A proof keeps a GPU busy for a tenth of its time; the rest is the reference, computed on one core,
and the compiler. So all rungs of a ladder are proven at once, if there is room, each on a few cores
that it shares with its neighbours: whoever compiles for long has the cores of those that are done.
What breaks a GPU's context breaks it for that rung alone.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.model.network import Network
from tilewright.rungs import rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.truth.verify import Verdict, verify

Prove = Callable[[Rung], Verdict]
# What a process takes: a context on the GPU, libraries and a compiler or two on the host.
GPU_BYTES, HOST_BYTES = 2 * 2**30, 2 * 2**30
# Each has at least so many cores, to compile on, though others have some of them, too.
LEAST_CORES = 4
# Its own thread computes; on cores that others are at work on, more would only wait.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
# On its cores before any library counts them.
START = (
    "import os; os.sched_setaffinity(0, {cores}); "
    "from tilewright.truth.side_by_side import main; main()"
)


@dataclass(frozen=True)
class Asked:
    """What all rungs are proven on."""

    device: Device
    network: Network
    batch: int
    seed: int


def places(rungs: int, cores: Sequence[int], gpu_bytes: int, host_bytes: int) -> list[list[int]]:
    """The cores of each process: as many processes as there are rungs, a few more than cores at
    most, and as many as there is memory for."""
    room = min(gpu_bytes // GPU_BYTES, host_bytes // HOST_BYTES, len(cores) * 5 // 4)
    processes = max(1, min(rungs, room))
    each = min(len(cores), max(LEAST_CORES, len(cores) // processes))
    starts = (len(cores) * number // processes for number in range(processes))
    return [[cores[(start + i) % len(cores)] for i in range(each)] for start in starts]


@contextmanager
def side_by_side(
    able: Sequence[Rung],
    asked: Asked,
    places: Sequence[list[int]],
    first: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Prove, Mapping[str, Future[Verdict]]]]:
    """A way to get the verdict on each of a ladder's rungs, and those that are to come, by the
    rungs' labels: all are being proven meanwhile. `first` is done while processes start.
    """
    free: SimpleQueue[list[int]] = SimpleQueue()
    for place in places:
        free.put(place)
    running, ready = _Running(), threading.Event()

    def prove(rung: Rung) -> Verdict:
        place = free.get()
        try:
            return _in_process(rung, asked, place, running, ready)
        finally:
            free.put(place)

    pool = ThreadPoolExecutor(len(places), "proof")
    # The last rungs have the longest kernels: they begin first.
    begun = {rung.label: pool.submit(prove, rung) for rung in reversed(able)}
    try:
        first()
        ready.set()
        yield lambda rung: begun[rung.label].result(), begun
    finally:
        for future in begun.values():
            future.cancel()
        running.end()
        ready.set()
        pool.shutdown()


def as_they_come(rungs: Iterable[Rung], begun: Mapping[str, Future[Any]]) -> Iterator[Rung]:
    """Rungs whose proofs were not begun, then the others in the order in which they are done."""
    waiting: dict[Future[Any], Rung] = {}
    for rung in rungs:
        if (future := begun.get(rung.label)) is None:
            yield rung
        else:
            waiting[future] = rung
    yield from map(waiting.__getitem__, as_completed(waiting))


class _Running:
    """Processes at work, until all of them, and any that is yet to come, are ended."""

    def __init__(self) -> None:
        self.processes: set[subprocess.Popen[bytes]] = set()
        self.ended = False

    def add(self, process: subprocess.Popen[bytes]) -> None:
        self.processes.add(process)
        if self.ended:  # between its start and now
            process.kill()

    def end(self) -> None:
        self.ended = True
        for process in list(self.processes):
            process.kill()


def _in_process(
    rung: Rung, asked: Asked, cores: list[int], running: _Running, ready: threading.Event
) -> Verdict:
    command = [sys.executable, "-P", "-c", START.replace("{cores}", repr(set(cores)))]
    # Ctrl-C is for the one who asked, and ends this by ending it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env={
            **os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))
        },
    )  # fmt: skip
    running.add(process)
    ready.wait()
    said, _ = process.communicate(pickle.dumps((rung.name, rung.precision.name, asked)))
    running.processes.discard(process)
    if process.returncode:
        raise TilewrightError(
            f"rung {rung.label!r}: the process that proves it ended ({process.returncode})"
        )
    verdict = pickle.loads(said)
    if isinstance(verdict, TilewrightError):
        raise verdict
    assert isinstance(verdict, Verdict)
    return verdict


def main() -> None:
    """The process: a question from standard input, the verdict or an error to standard output."""
    name, precision, asked = pickle.load(sys.stdin.buffer)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    (rung,) = (each for each in rungs(asked.device) if each.name == name)
    try:
        answer: Verdict | TilewrightError = verify(
            rung.at(precision), asked.device, asked.network, asked.seed, asked.batch
        )
    except TilewrightError as error:
        answer = error
    with answers:
        pickle.dump(answer, answers)
