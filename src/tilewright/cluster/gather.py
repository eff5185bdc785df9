"""The driver's side: answers in any order become one result, each image exactly once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from time import monotonic

import numpy as np

from tilewright.cluster.worker import Answer
from tilewright.data.parts import Parts
from tilewright.errors import TilewrightError
from tilewright.plan import Plan
from tilewright.results.merged import added
from tilewright.results.predictions import Predictions
from tilewright.results.run import RunRecord, WorkerTime


@dataclass
class _Tally:
    """What one worker did so far."""

    device: str
    born: float
    ended: float
    heard: float  # of it last, by our own clock
    images: int = 0
    parts: int = 0
    starting: float = 0.0
    loading: float = 0.0
    computing: float = 0.0
    waiting: float = 0.0


@dataclass
class Gathering:
    """Where answers go. `clock` is injected by tests."""

    parts: Parts
    clock: Callable[[], float] = monotonic
    record: RunRecord | None = None
    plan: Plan | None = None
    probabilities: bool = True
    labelled: bool | None = None
    done: int = 0
    workers: dict[str, _Tally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        images = self.parts.images
        self.waiting = {part.first: part.images for part in self.parts.all}
        self.predicted = np.empty(images, np.int64)
        self.values = np.empty(images, np.float32)
        self.labels = np.empty(images, np.int64)

    def take(self, answer: Answer) -> None:
        images = self.waiting.pop(answer.first, None)
        if images != len(answer.predicted):
            raise TilewrightError(
                f"internal error: {len(answer.predicted)} answers from image {answer.first} on, "
                f"where {images} were waited for"
            )
        place = slice(answer.first, answer.first + images)
        self.predicted[place], self.values[place] = answer.predicted, answer.values
        self._label(answer)
        self.probabilities &= answer.probabilities
        self.plan = self.plan or answer.plan
        self.record = answer.record if self.record is None else added(self.record, answer.record)
        self.done += images
        self._count(answer)

    def _label(self, answer: Answer) -> None:
        """All images have labels, or none has: a share of right answers is of all of them."""
        first, after = answer.first, answer.first + len(answer.predicted)
        if self.labelled not in (None, answer.labels is not None):
            words = (
                "have labels, others have none"
                if answer.labels is not None
                else ("have no labels, others have")
            )
            raise TilewrightError(f"{self.parts.source}: images {first} to {after - 1} {words}")
        self.labelled = answer.labels is not None
        if answer.labels is not None:
            self.labels[first:after] = answer.labels

    def _count(self, answer: Answer) -> None:
        times = answer.times
        worker = self.workers.setdefault(
            answer.worker, _Tally(answer.record.device_name, times.born, times.born, 0.0)
        )
        worker.images += len(answer.predicted)
        worker.parts += 1
        worker.starting += times.starting
        worker.loading += times.loading
        worker.computing += times.computing
        worker.waiting += max(0.0, times.began - worker.ended)
        worker.ended, worker.heard = times.ended, self.clock()

    @property
    def predictions(self) -> Predictions:
        if self.waiting:
            raise TilewrightError(
                f"internal error: nothing came of {sum(self.waiting.values())} images"
            )
        labels = self.labels if self.labelled else None
        return Predictions(self.predicted, self.values, labels, self.probabilities)

    def worker_times(self, lost: Collection[str]) -> list[WorkerTime]:
        """Of every worker that answered, and of those that were lost before they could."""
        now = self.clock()
        for name in lost:
            self.workers.setdefault(name, _Tally("", 0.0, 0.0, now))
        return [
            WorkerTime(
                name=name, device_name=each.device, images=each.images, parts=each.parts,
                starting_seconds=each.starting, loading_seconds=each.loading,
                computing_seconds=each.computing,
                waiting_seconds=each.waiting + (0.0 if name in lost else now - each.heard),
                lost=name in lost,
            )
            for name, each in self.workers.items()
        ]  # fmt: skip
