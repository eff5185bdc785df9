"""A data set through a cluster with Ray Data: parts out, answers back.

What travels is small: a part's description to a worker, which reads its images itself, and the
answers back. Ray Data keeps the pool of workers, hands each part to one that is free, holds the
number of parts on their way down, and gives the parts of a worker that died to another: what comes
out of it is one answer for each part. A queue of our own over Ray's actors would start two seconds
sooner (2 cores, 2026-11-16), and would be those four things once more.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilewright.cluster import session
from tilewright.cluster.gather import Gathering
from tilewright.cluster.ledger import Ledger
from tilewright.cluster.places import Places, places
from tilewright.cluster.worker import ANSWER, PART, Answer, Problem, Worker
from tilewright.data import catalogue
from tilewright.data.parts import Parts, list_data
from tilewright.errors import TilewrightError
from tilewright.job import Request
from tilewright.model.load import describe, load_parameters
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.plan_file import read
from tilewright.results.merged import finished
from tilewright.results.predictions import Predictions
from tilewright.results.run import Phase, RunRecord
from tilewright.trace import Trace

if TYPE_CHECKING:
    from ray.actor import ActorHandle

THROUGH = "images through workers"
IN_FLIGHT = 2  # parts with a worker: it need not wait for the next to be sent


@dataclass(frozen=True)
class Spread:
    """What a run on a cluster gave."""

    network: Network
    plan: Plan
    predictions: Predictions
    record: RunRecord


def run(
    request: Request,
    workers: int | None = None,
    address: str | None = None,
    progress: Callable[[str, int, int], None] = lambda doing, done, of: None,
) -> Spread:
    """Send the images of a request through workers of a cluster.

    Files of images, and a kernel file or plan if one is named, are read by the workers, under the
    path that they have here.
    """
    trace = Trace()
    with trace.phase("create network"):
        network = describe(request.net)
        device = request.device if request.plan is None else read(request.plan, network).device
    with trace.phase("load parameters"):
        network = load_parameters(network, request.net, request.weights)
    shape = network.input.shape
    source = request.data if request.data is not None else catalogue.default_for(shape)
    with trace.phase("list data"):
        # Before a cluster is started: what is wrong with it is said at once.
        listed = list_data(source, shape, request.images)
    with ExitStack() as opened:
        progress("starting the cluster", 0, 1)
        with trace.phase("open cluster"):
            opened.enter_context(session.connected(address, workers or 1))
            room = places(device, workers, session.machines())
        cut = listed.cut(request.batch, room.workers)
        gathering = Gathering(cut)
        with trace.phase(THROUGH):
            progress("starting workers", 0, 1)
            sent = _Sent(replace(request, net=network, weights=None), cut, room)
            for answer in sent.answers():
                gathering.take(answer)
                progress(f"{network.name}, images", gathering.done, cut.images)
            times = gathering.worker_times(sent.lost())
        with trace.phase("close cluster"):
            opened.close()
    predictions = gathering.predictions
    assert gathering.record is not None and gathering.plan is not None  # of at least one part
    phases = [Phase(name=each.name, seconds=each.seconds) for each in trace.of("phase")]
    made = finished(gathering.record, cut.source, phases, THROUGH, times)
    return Spread(network, gathering.plan, predictions, made)


class _Noted:
    """Ray's handle of a ledger as a plain function."""

    def __init__(self, ledger: ActorHandle[Ledger]) -> None:
        self.ledger = ledger

    def __call__(self, first: int, worker: str) -> int:
        return int(session.library().get(self.ledger.begin.remote(first, worker)))


class _Sent:
    """Parts on their way through workers."""

    def __init__(self, request: Request, cut: Parts, room: Places) -> None:
        self.request, self.cut, self.room = request, cut, room
        self.ray = session.library()
        self.ledger = self.ray.remote(num_cpus=0)(Ledger).remote()

    def answers(self) -> Iterator[Answer]:
        """What workers made of every part, in the order in which they were done."""
        from ray import data

        logging.getLogger("ray.data").setLevel(logging.CRITICAL)  # what it knows is raised, too
        rows = [{PART: pickle.dumps(part)} for part in self.cut.all]
        parts = data.from_items(rows, override_num_blocks=len(rows))
        parts.context.enable_progress_bars = False
        room = self.room
        answers = parts.map_batches(
            Worker,
            fn_constructor_args=(
                self.request, 0 if room.gpus else room.cpus, _Noted(self.ledger),
            ),
            compute=data.ActorPoolStrategy(
                size=room.workers, max_tasks_in_flight_per_actor=IN_FLIGHT
            ),
            batch_size=None,
            num_cpus=room.cpus,
            num_gpus=room.gpus,
        )  # fmt: skip
        with session.in_one_line():
            for block in answers.iter_batches(batch_size=None, prefetch_batches=0):
                for row in block[ANSWER]:
                    answer: Answer | Problem = pickle.loads(row)
                    if isinstance(answer, Problem):
                        raise TilewrightError(answer.words)
                    yield answer

    def lost(self) -> set[str]:
        """Workers that died in the middle of a part."""
        return set(self.ray.get(self.ledger.lost.remote()))
