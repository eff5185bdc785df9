"""Proofs of several rungs on one GPU at the same time, each in a process of its own.

A proof keeps a GPU busy for a tenth of its time; the rest is the reference, computed on one core,
and the compiler. So the rungs of a ladder are proven side by side, on cores of their own. What
breaks a GPU's context breaks it for that rung alone.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue

from tilewright.errors import TilewrightError
from tilewright.model.network import Network
from tilewright.rungs import rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.truth.verify import Verdict, verify

Prove = Callable[[Rung], Verdict]
# Processes at a time: each has a context of half a gigabyte on the GPU, and 100 MB of libraries.
MOST_PROCESSES = 8
# On its cores before any library counts them.
START = (
    "import os; os.sched_setaffinity(0, {cores}); "
    "from tilewright.truth.side_by_side import main; main()"
)


@contextmanager
def side_by_side(
    able: Sequence[Rung], device: Device, network: Network, batch: int, cores: Sequence[int]
) -> Iterator[Prove]:
    """A way to get the verdict on each of a ladder's rungs: all are being proven meanwhile."""
    processes = min(MOST_PROCESSES, len(cores), len(able))
    places: SimpleQueue[list[int]] = SimpleQueue()
    for number in range(processes):
        places.put(list(cores[number::processes]))
    running = _Running()

    def prove(rung: Rung) -> Verdict:
        place = places.get()
        try:
            return _in_process(rung, (device, network, batch), place, running)
        finally:
            places.put(place)

    pool = ThreadPoolExecutor(processes, "proof")
    # The last rungs have the longest kernels: they begin first.
    begun: dict[str, Future[Verdict]] = {
        rung.label: pool.submit(prove, rung) for rung in reversed(able)
    }
    try:
        yield lambda rung: begun[rung.label].result()
    finally:
        for future in begun.values():
            future.cancel()
        running.end()
        pool.shutdown()


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
    rung: Rung,
    given: tuple[Device, Network, int],
    cores: list[int],
    running: _Running,
) -> Verdict:
    command = [sys.executable, "-P", "-c", START.replace("{cores}", repr(set(cores)))]
    # Ctrl-C is for the one who asked, and ends this by ending it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    running.add(process)
    said, _ = process.communicate(pickle.dumps((rung.name, rung.precision.name, *given)))
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
    name, precision, device, network, batch = pickle.load(sys.stdin.buffer)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    (rung,) = (each for each in rungs(device) if each.name == name)
    try:
        answer: Verdict | TilewrightError = verify(rung.at(precision), device, network, batch=batch)
    except TilewrightError as error:
        answer = error
    with answers:
        pickle.dump(answer, answers)
