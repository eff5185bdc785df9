"""What `tilewright.run` gives back of a run on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.job import Request
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.results.predictions import Predictions
from tilewright.results.run import RunRecord
from tilewright.verbs.arguments import Progress, telling
from tilewright.verbs.result import KeptResult, Value, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False, eq=False)
class SpreadResult(KeptResult[RunRecord]):
    """What a run on a cluster gave: `predictions` of every image, and the tables of all workers.

    Images and outputs stay with the workers: there may be more of them than fit into memory.
    """

    network: Network
    plan: Plan
    predictions: Predictions

    @property
    def predicted(self) -> NDArray[np.int64]:
        """The class of every image."""
        return self.predictions.predicted

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Of every image, where the data has them."""
        return self.predictions.labels

    def report(self) -> Iterator[RenderableType]:
        from tilewright.views import run as view

        return view.report(self.record)

    def rows(self) -> list[dict[str, Value]]:
        """A row a worker."""
        return table_of(self.record.workers)

    def predictions_csv(self) -> str:
        """A CSV of index, label, predicted, probability."""
        return "".join(self.predictions.csv())

    def save_plan(self, path: str | Path) -> None:
        """Write what was chosen for every layer, to be used again as `plan`."""
        from tilewright.plan_file import write

        write(Path(path), self.plan, self.network)


def spread(
    asked: Request, workers: int | None, address: str | None, progress: Progress
) -> SpreadResult:
    """A request on a cluster."""
    from tilewright.cluster.images import run

    if asked.repeats > 1:
        raise TilewrightError("--repeats is not for --on ray: images go through once")
    with telling(progress) as tell:
        done = run(asked, workers, address, tell)
    return SpreadResult(done.record, done.network, done.plan, done.predictions)
