"""A tuning on a cluster: candidates are timed by other workers, the rest is done by the first.

What the search will try soon it says beforehand: those candidates are timed meanwhile, each on
some worker's device, all of one kind. In the end the best plans are proven and take turns on one
device, as on one machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

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
from tilewright.errors import TilewrightError
from tilewright.measure.samples import Sample
from tilewright.plan import Plan
from tilewright.results.tune import TuneRecord
from tilewright.tune.device import OnDevice
from tilewright.tune.search import Candidate, Timer
from tilewright.tune.spans import Span
from tilewright.tune.survey import Progress
from tilewright.tune.whole import Asked, tune

if TYPE_CHECKING:
    from ray.actor import ActorHandle, ActorMethod

REPEATS = 6  # as many as the search asks for, of a candidate that is not clearly slower
RETRIES = 2  # of a candidate whose worker died
Seconds = Done[list[float]] | Failed
Ask = Callable[[Span, Candidate, int], Seconds]
Word = Doing | str


class Tuner(Bench):
    """A worker that times candidates, or tunes with others' help."""

    workshop: OnDevice | None = None

    def seconds(
        self, fetch: Callable[[], OnDevice], span: Span, candidate: Candidate, repeats: int
    ) -> Seconds:
        """The workshop is fetched once: by who took a dead worker's place, too."""
        if self.workshop is None:
            self.workshop = fetch()
        try:
            return Done(list(self.workshop.timer(span)(candidate, repeats)))
        except TilewrightError as error:
            return failed(error)

    def tune(
        self, asked: Asked, others: Sequence[ActorHandle[Tuner]]
    ) -> Iterator[Said[Word, TuneRecord]]:
        def helped(here: OnDevice) -> OnDevice | Helped:
            return Helped(here, _asks(here, others)) if others else here

        def work(tell: Callable[[Word], None]) -> TuneRecord:
            return tune(asked, Often(tell).progress, tell, helped)

        yield from said(work)


def _asks(here: OnDevice, others: Sequence[ActorHandle[Tuner]]) -> list[Ask]:
    ray = session.library()
    fetch = partial(ray.get, ray.put(here))

    def ask(other: ActorHandle[Tuner]) -> Ask:
        method: ActorMethod = other.seconds.options(max_task_retries=RETRIES)
        return lambda *given: ray.get(method.remote(fetch, *given))

    return [ask(other) for other in others]


@dataclass
class Helped:
    """A workshop that has candidates timed by others before it is asked for them."""

    here: OnDevice
    others: Sequence[Ask]
    begun: dict[tuple[str, Candidate], Future[Seconds]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(len(self.others), "candidates")
        self.free: SimpleQueue[Ask] = SimpleQueue()
        for other in self.others:
            self.free.put(other)

    def _begin(self, span: Span, candidate: Candidate) -> Future[Seconds]:
        key = span.name, candidate
        if key not in self.begun:
            self.begun[key] = self.pool.submit(self._seconds, span, candidate)
        return self.begun[key]

    def _seconds(self, span: Span, candidate: Candidate) -> Seconds:
        other = self.free.get()
        try:
            return other(span, candidate, REPEATS)
        finally:
            self.free.put(other)

    def timer(self, span: Span) -> Timer:
        taken: dict[Candidate, list[float]] = {}

        def seconds(candidate: Candidate, repeats: int) -> Sequence[float]:
            if candidate not in taken:
                answer = self._begin(span, candidate).result()
                if isinstance(answer, Failed):
                    raise error_of(answer, TilewrightError)
                taken[candidate] = list(answer.found)
            some, taken[candidate] = taken[candidate][:repeats], taken[candidate][repeats:]
            return some

        return seconds

    def ahead(self, span: Span, candidates: Sequence[Candidate]) -> None:
        for candidate in candidates:
            self._begin(span, candidate)

    def prove(self, span: Span, candidate: Candidate) -> str | None:
        return self.here.prove(span, candidate)

    def prove_plan(self, plan: Plan) -> tuple[str, str] | None:
        return self.here.prove_plan(plan)

    def race(self, plans: Mapping[str, Plan], progress: Callable[[str], None]) -> dict[str, Sample]:
        """When nobody times candidates any more: they may be of this machine."""
        self.pool.shutdown(cancel_futures=True)
        return self.here.race(plans, progress)


def tune_on(
    asked: Asked,
    workers: int | None,
    address: str | None,
    progress: Progress,
    say: Callable[[str], None],
) -> TuneRecord:
    """A tuning on a cluster. Its files are written by a worker, under the path they have here."""
    progress("starting the cluster", 0, 1)
    with session.connected(address, workers or 1):
        ray = session.library()
        progress("starting workers", 0, 1)
        first, *others = of_one_kind(Tuner, asked.device, workers)

        def hear(words: Word) -> None:
            if isinstance(words, Doing):
                progress(words.doing, words.done, words.of)
            else:
                say(words)

        there = replace(asked, out=Path(asked.out).absolute())
        streaming: ActorMethod = first.tune.options(num_returns="streaming")
        with session.in_one_line():
            return listen(map(ray.get, streaming.remote(there, others)), hear)
