"""A ladder on a cluster: rungs are proven by all workers, and timed by one of them, in turns.

Proofs take most of a ladder's time and say nothing of time, so they may be anybody's whose device
is of the same kind. Times are compared with each other, and are taken together on one device, as
they are on one machine: the same code does both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Protocol

from tilewright import environment
from tilewright.climb import Audience, Elsewhere, Ladder, Proof, Proofs, Row
from tilewright.cluster import session
from tilewright.cluster.devices import Bench, of_one_kind
from tilewright.cluster.saying import (
    Doing,
    Done,
    Failed,
    Often,
    Said,
    error_of,
    failed,
    listen,
    said,
)
from tilewright.contest import Progress
from tilewright.errors import TilewrightError
from tilewright.model.layers import MissingForm
from tilewright.results.record import Environment
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.verify import Verdict

if TYPE_CHECKING:
    from ray.actor import ActorHandle, ActorMethod

RETRIES = 2  # of a proof


@dataclass(frozen=True)
class Timed:
    """A turn of a row."""

    name: str
    seconds: float


Word = Doing | Timed | Row
Climbed = tuple[Ladder, Environment]
# A verdict, or why there is none.
Proven = Done[Verdict] | Done[str] | Failed


class Climb(Protocol):
    """`climb.climb` with all said but who watches, and where proofs are made. It can be pickled."""

    def __call__(
        self, *, progress: Progress, audience: Audience, elsewhere: Elsewhere | None
    ) -> Ladder: ...


class Climber(Bench):
    """A worker that proves rungs, or climbs with others' help."""

    def prove(self, proof: Proof, rung: Rung) -> Proven:
        return proven(proof, rung)

    def climb(
        self, climb: Climb, others: Sequence[ActorHandle[Climber]]
    ) -> Iterator[Said[Word, Climbed]]:
        ray = session.library()

        def ask(other: ActorHandle[Climber]) -> Prover:
            # A worker that dies is replaced, and begins once more.
            again: ActorMethod = other.prove.options(max_task_retries=RETRIES)
            return lambda proof, rung: ray.get(again.remote(proof, rung))

        provers: list[Prover] = [proven, *map(ask, others)]

        def work(tell: Callable[[Word], None]) -> Climbed:
            watch = _Watching(tell)
            found = climb(
                progress=watch.progress, audience=watch,
                elsewhere=lambda rungs, proof: spread(rungs, proof, provers),
            )  # fmt: skip
            return found, environment.fingerprint()

        yield from said(work)


Prover = Callable[[Proof, Rung], Proven]


def proven(proof: Proof, rung: Rung) -> Proven:
    try:
        return Done(proof(rung, lambda: None))
    except (DoesNotFit, MissingForm) as error:
        return Done(str(error))
    except TilewrightError as error:
        return failed(error)


@contextmanager
def spread(rungs: Sequence[Rung], proof: Proof, provers: Sequence[Prover]) -> Iterator[Proofs]:
    """Rungs are proven by whoever is free, from now on; what comes back waits for the verdict."""
    free: SimpleQueue[Prover] = SimpleQueue()
    for prover in provers:
        free.put(prover)

    def prove(rung: Rung) -> Proven:
        prover = free.get()
        try:
            return prover(proof, rung)
        finally:
            free.put(prover)

    pool = ThreadPoolExecutor(len(provers), "proof")
    begun: dict[str, Future[Proven]] = {rung.label: pool.submit(prove, rung) for rung in rungs}

    def verdict(rung: Rung, tell: Callable[[], None]) -> Verdict:
        if rung.label not in begun:  # a rung of the CPU on a GPU's ladder
            return proof(rung, tell)
        answer = begun[rung.label].result()
        if isinstance(answer, Failed):
            raise error_of(answer, TilewrightError)
        if isinstance(answer.found, str):
            raise DoesNotFit(answer.found)
        return answer.found

    try:
        yield Proofs(verdict, begun)
    finally:
        pool.shutdown(cancel_futures=True)


class _Watching(Often):
    """Tells somebody far away what a climb tells."""

    def __init__(self, tell: Callable[[Word], None]) -> None:
        super().__init__(tell)
        self.found = tell

    def proven(self, row: Row) -> None:
        self.found(row)

    def timed(self, name: str, seconds: float) -> None:
        self.found(Timed(name, seconds))


def climb_on(
    climb: Climb,
    device: Device,
    workers: int | None,
    address: str | None,
    progress: Progress,
    audience: Audience,
) -> Climbed:
    """A climb on a cluster, and the machine that it was timed on."""
    progress("starting the cluster", 0, 1)
    with session.connected(address, workers or 1):
        ray = session.library()
        progress("starting workers", 0, 1)
        first, *others = of_one_kind(Climber, device, workers)

        def hear(words: Word) -> None:
            match words:
                case Doing(doing, done, of):
                    progress(doing, done, of)
                case Timed(name, seconds):
                    audience.timed(name, seconds)
                case row:
                    audience.proven(row)

        streaming: ActorMethod = first.climb.options(num_returns="streaming")
        with session.in_one_line():
            return listen(map(ray.get, streaming.remote(climb, others)), hear)
