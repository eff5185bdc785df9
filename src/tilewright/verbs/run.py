"""`tilewright.run`: a network over images on one rung; phases, layers, correctness and speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from tilewright import job
from tilewright.data.catalogue import Source
from tilewright.data.dataset import Dataset
from tilewright.model.load import Net, Weights
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.profiling.near import beside_peak
from tilewright.results.predictions import Predictions
from tilewright.results.probabilities import are_probabilities
from tilewright.results.run import RunRecord, record
from tilewright.runtime.device import Device
from tilewright.verbs.arguments import Progress, on_cluster, positive, quiet, telling
from tilewright.verbs.request import request
from tilewright.verbs.result import KeptResult, Value, table_of
from tilewright.verbs.spread import SpreadResult, spread

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True, repr=False, eq=False)
class RunResult(KeptResult[RunRecord]):
    """What a run gave: `outputs` has what the network gives for each image, in the shape that it
    has from `tilewright.compile`, too; `predicted` the class, or place, of the largest.

    `dataset` has the images and their labels. `plan` is what was chosen for every layer.
    """

    network: Network
    plan: Plan
    dataset: Dataset
    outputs: NDArray[np.float32]
    predicted: NDArray[np.int64]

    @property
    def labels(self) -> NDArray[np.int64] | None:
        """Of every image, where the data has them."""
        return self.dataset.labels

    def report(self) -> Iterator[RenderableType]:
        from tilewright.views import run as view

        return view.report(self.record)

    def rows(self) -> list[dict[str, Value]]:
        """A row a layer."""
        return table_of(self.record.layers)

    @property
    def predictions(self) -> Predictions:
        """Of every image; `write(path)` makes a CSV, Parquet or .npz file of them."""
        rows = self.outputs.reshape(len(self.predicted), -1)
        values = rows[np.arange(len(rows)), self.predicted]
        return Predictions(self.predicted, values, self.labels, are_probabilities(rows))

    def predictions_csv(self) -> str:
        """A CSV of index, label, predicted, probability."""
        return "".join(self.predictions.csv())

    def pictures(self, count: int) -> Iterator[RenderableType]:
        """So many images with what was predicted, wrong ones first, for `rich` to print."""
        from tilewright.views.run import pictures

        return pictures(self, positive("count", count))

    def save_plan(self, path: str | Path) -> None:
        """Write what was chosen for every layer, to be used again as `plan`."""
        from tilewright.plan_file import write

        write(Path(path), self.plan, self.network)


class Asked(TypedDict, total=False):
    """What may be asked of a run, wherever it is."""

    weights: Weights | None
    data: Source | None
    images: int | None
    batch: int | None
    device: str | Device | None
    rung: str | Path | None
    memory: str | None
    precision: str | None
    check: bool
    plan: str | Path | None
    repeats: int
    workers: int | None
    address: str | None
    progress: Progress


@overload
def run(net: Net = ..., *, on: None = None, **asked: Unpack[Asked]) -> RunResult: ...
@overload
def run(net: Net = ..., *, on: str, **asked: Unpack[Asked]) -> SpreadResult: ...
@quiet
def run(
    net: Net = "ece408",
    *,
    weights: Weights | None = None,
    data: Source | None = None,
    images: int | None = None,
    batch: int | None = None,
    device: str | Device | None = None,
    rung: str | Path | None = None,
    memory: str | None = None,
    precision: str | None = None,
    check: bool = False,
    plan: str | Path | None = None,
    repeats: int = 1,
    on: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = False,
) -> RunResult | SpreadResult:
    """Run a network over images on one rung.

    `net` is a name, a path, a `Network` or a dict; `weights` a path or a mapping of arrays. `data`
    is a name, a path, an array of images or a pair of images and labels; the first `images` of it
    are taken, `batch` at a time (default: 100). `device` is cpu (the default), opencl, cuda or one
    of several as in cuda:1; `rung` is how to compute, or a kernel file (default: our fastest on the
    device); `memory` how data travels on a GPU; `precision` fp16, tf32, tf32x3 or fp32 where a rung
    has the choice. `check` proves the rung first. `plan` is a file that `save_plan` wrote, which
    has device, rung, memory, batch and precision. `repeats` are forward passes; tables are of the
    last. `on` "ray" sends the images through a Ray cluster: so many `workers` (default: one for
    each processor or GPU) of the cluster at `address`, or of one that is started here for it.
    `progress`: True for a bar, or a function that is told what is being done, how much of it is
    done and how much there is.
    """
    asked = request(
        net, weights, data, images, batch, device, rung, memory, precision, check, plan, repeats
    )
    if on_cluster(on, workers, address):
        return spread(asked, workers, address, progress)
    title = str(net) if isinstance(net, str | Path) else "the network"
    with telling(progress) as tell:
        passed, built = (partial(tell, f"{title}, {what}") for what in ("images", "kernels built"))
        done = job.run(asked, passed, built, lambda doing: tell(doing, 0, 1))
        tell("measuring this device's limits", 0, 1)
        made = beside_peak(record(done))
    outputs = done.outputs.reshape(-1, *done.network.output_shape)
    return RunResult(made, done.network, done.plan, done.dataset, outputs, done.predicted)
