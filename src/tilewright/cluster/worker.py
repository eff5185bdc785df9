"""A worker's side: a program built once, then part after part of the data set through it.

It is what `tilewright run` does, over a part at a time: the same loading, building, proof and
checks. Ray is not needed to read or to test this.
"""

from __future__ import annotations

import os
import pickle
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright import job
from tilewright.cluster.ledger import TRIES, Begin, unwritten
from tilewright.cluster.places import take_cores
from tilewright.data.dataset import Dataset, checked_labels
from tilewright.data.parts import Part
from tilewright.errors import TilewrightError
from tilewright.memory import pin, pins
from tilewright.model.load import describe
from tilewright.plan import Plan
from tilewright.results.probabilities import are_probabilities
from tilewright.results.run import RunRecord, record
from tilewright.trace import Trace

# Columns of what goes through the cluster.
PART, ANSWER = "part", "answer"


@dataclass(frozen=True)
class Times:
    """Seconds of a worker for one part, and by its machine's clock when it was given to it."""

    born: float
    began: float
    ended: float
    starting: float
    loading: float
    computing: float


@dataclass(frozen=True, eq=False)
class Answer:
    """What a worker made of a part."""

    first: int
    predicted: NDArray[np.int64]
    values: NDArray[np.float32]
    labels: NDArray[np.int64] | None
    probabilities: bool
    record: RunRecord
    plan: Plan
    worker: str
    times: Times


@dataclass(frozen=True)
class Problem:
    """Why there is no answer, in one line."""

    words: str


class Worker:
    """Ray makes one in each worker process, and calls it with rows of pickled parts."""

    def __init__(self, request: job.Request, cores: int, begin: Begin = unwritten) -> None:
        """`request` has the network itself, whose file may be on another machine; of `cores` it
        takes none if that is 0; `begin` is told of every part.
        """
        self.born = time.time()
        self.name = f"{platform.node()}:{os.getpid()}"
        self.request = request
        self.classes = int(np.prod(describe(request.net).output_shape))
        self.begin = begin
        self.held = take_cores(cores) if cores else None
        self.ready: job.Ready | None = None

    def __call__(self, rows: Mapping[str, NDArray[np.object_]]) -> dict[str, list[bytes]]:
        answers = []
        for row in rows[PART]:
            part: Part = pickle.loads(row)
            try:
                given: Answer | Problem = self.answer(part)
            except TilewrightError as error:
                last = part.first + part.images - 1
                given = Problem(f"images {part.first} to {last}: {error}")
            answers.append(pickle.dumps(given))
        return {ANSWER: answers}

    def answer(self, part: Part) -> Answer:
        began, trace = time.time(), Trace()
        if self.begin(part.first, self.name) > TRIES:
            raise TilewrightError(f"{TRIES} workers ended in the middle of them")
        with trace.phase("load data"):
            dataset = part.read()
            if dataset.labels is not None:
                checked_labels(dataset.labels, self.classes, dataset.source)
        with trace.phase("start"):
            ready = self.ready = self.ready or self._start(dataset)
        with trace.phase("pin images"):
            if pins(ready.program):
                dataset = replace(dataset, images=pin(ready.program, dataset.images))
        result = job.forward(replace(ready, dataset=dataset), trace)
        spent = trace.phase_seconds
        times = Times(
            self.born, began, time.time(), spent("start"),
            spent("load data") + spent("pin images"), spent("forward") + spent("accuracy"),
        )  # fmt: skip
        values = result.outputs[np.arange(len(dataset)), result.predicted]
        return Answer(
            part.first, result.predicted, values, dataset.labels, are_probabilities(result.outputs),
            record(result), result.plan, self.name, times,
        )  # fmt: skip

    def _start(self, dataset: Dataset) -> job.Ready:
        arrays = (dataset.images, dataset.labels)
        return job.make_ready(replace(self.request, data=arrays, images=None), Trace())
