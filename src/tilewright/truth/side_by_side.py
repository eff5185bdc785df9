"""Proofs of several rungs on one GPU at the same time, each in a process of its own.

A proof keeps a GPU busy for a tenth of its time; the rest is the reference, computed on one core,
and the compiler. So all rungs of a ladder are proven at once, if there is room. All share all
cores, where those with the longest kernels come first, and whose proofs take longest are made in
two shares; whoever waits for the GPU leaves its core to others. What breaks a GPU's context breaks
it for that rung alone.
"""

from __future__ import annotations

import itertools
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tilewright.environment import cpu_cores
from tilewright.errors import TilewrightError
from tilewright.model.network import Network
from tilewright.rungs import rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime import cuda, nvrtc
from tilewright.runtime.device import Device
from tilewright.truth.verify import WHOLE, Share, Verdict, together, verify

Prove = Callable[[Rung], Verdict]
# What a process takes: a context on the GPU, libraries and a compiler or two on the host.
GPU_BYTES, HOST_BYTES = 2 * 2**30, 2 * 2**30
# Compilers that each may have, at least; and a rung whose kernels take long.
COMPILERS, MORE_COMPILERS = 4, 8
# How much a rung whose kernels are soon compiled stands back for those that have long ones. On 16
# cores of a machine with an H200 `network` was proven half a minute after all others.
STANDS_BACK = 10
# A proof of generated networks of kernels took 30 s of one core there, all others 9.
SHARES = 2
# Its own thread computes; on cores that others are at work on, more would only wait.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
START = "from tilewright.truth.side_by_side import main; main()"


@dataclass(frozen=True)
class Asked:
    """What all rungs are proven on."""

    device: Device
    network: Network
    batch: int
    seed: int


@dataclass(frozen=True)
class Room:
    """How many proofs are made at a time, and the compilers that each may have."""

    proofs: int
    compilers: int = COMPILERS


def shares(rung: Rung, network: Network) -> list[Share]:
    """What a rung's proof is made in: two, if it computes several layers at once by itself."""
    long = not rung.vendor and len(rung.cut(network)) < len(network.stages)
    return [Share(number, SHARES) for number in range(SHARES)] if long else [WHOLE]


def room(wanted: int, cores: int, gpu_bytes: int, host_bytes: int) -> Room:
    """As many proofs, or shares of some, as there are, a few more than cores at most, and as many
    as there is memory for."""
    most = min(gpu_bytes // GPU_BYTES, host_bytes // HOST_BYTES, cores * 5 // 4)
    proofs = max(1, min(wanted, most))
    return Room(proofs, min(cores, max(COMPILERS, cores // proofs)))


@contextmanager
def side_by_side(
    able: Sequence[Rung],
    asked: Asked,
    given: Room,
    first: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Prove, Mapping[str, Future[Verdict]]]]:
    """A way to get the verdict on each of a ladder's rungs, and those that are to come, by the
    rungs' labels: all are being proven meanwhile. `first` is done while processes start.
    """
    running, ready = _Running(), threading.Event()

    def prove(rung: Rung, share: Share) -> Verdict:
        return _in_process(rung, share, asked, given.compilers, running, ready)

    def whole(parts: Sequence[Future[Verdict]]) -> Verdict:
        return together([part.result() for part in parts])

    pool, waiting = ThreadPoolExecutor(given.proofs, "proof"), ThreadPoolExecutor(len(able))
    # The last rungs have the longest kernels: they begin first.
    parts = {
        rung.label: [pool.submit(prove, rung, share) for share in shares(rung, asked.network)]
        for rung in reversed(able)
    }
    begun = {label: waiting.submit(whole, each) for label, each in parts.items()}
    try:
        first()
        ready.set()
        yield lambda rung: begun[rung.label].result(), begun
    finally:
        for future in itertools.chain(*parts.values()):
            future.cancel()
        running.end()
        ready.set()
        pool.shutdown()
        waiting.shutdown()


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
    rung: Rung,
    share: Share,
    asked: Asked,
    compilers: int,
    running: _Running,
    ready: threading.Event,
) -> Verdict:
    command = [sys.executable, "-P", "-c", START]
    # Ctrl-C is for the one who asked, and ends this by ending it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        env={
            **os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))
        },
    )  # fmt: skip
    running.add(process)
    assert process.stdin
    with suppress(BrokenPipeError):  # it has ended: its code says more
        pickle.dump((rung.name, rung.precision.name, asked.device, compilers), process.stdin)
        process.stdin.flush()
    ready.wait()
    said, _ = process.communicate(pickle.dumps((asked, share)))
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
    """The process: who it is for and then, when it is to begin, the question from standard input;
    the verdict or an error to standard output."""
    name, precision, device, compilers = pickle.load(sys.stdin.buffer)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    (rung,) = (each for each in rungs(device) if each.name == name)
    answer: Verdict | TilewrightError
    try:
        _get_ready(rung, device, compilers)
        asked, share = pickle.load(sys.stdin.buffer)
        answer = verify(
            rung.at(precision), device, asked.network, asked.seed, asked.batch, share=share
        )
    except TilewrightError as error:
        answer = error
    with answers:
        pickle.dump(answer, answers)
    # At once: a library that takes its threads down may end a process that has said all.
    os._exit(0)


def _get_ready(rung: Rung, device: Device, compilers: int) -> None:
    """What takes seconds and needs no question: libraries, and a context on the GPU, of which a
    driver makes one after the other."""
    if rung.convolutions is not None:
        os.nice(STANDS_BACK)
    else:
        compilers = max(compilers, min(cpu_cores(), MORE_COMPILERS))
    nvrtc.at_most(compilers)
    if device.kind == "cuda":
        cuda.wait_asleep(device)
    if reason := rung.missing(device):
        raise TilewrightError(f"rung {rung.name!r}: {reason}")
    rung.open_runtime(device, rung.memories[0])
