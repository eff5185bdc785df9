"""`tilewright.run`: a network over images on one rung; phases, layers, correctness and speed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright import job
from tilewright.data.catalogue import Source
from tilewright.data.dataset import Dataset
from tilewright.model.load import Net, Weights
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.profiling.near import beside_peak
from tilewright.results.run import RunRecord, record
from tilewright.runtime.device import Device
from tilewright.verbs.arguments import Progress, positive, quiet, telling
from tilewright.verbs.request import request
from tilewright.verbs.result import KeptResult, Value, table_of

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

    def predictions_csv(self) -> str:
        """A CSV of index, label, predicted, probability."""
        from tilewright.views.run import predictions_csv

        return predictions_csv(self)

    def pictures(self, count: int) -> Iterator[RenderableType]:
        """So many images with what was predicted, wrong ones first, for `rich` to print."""
        from tilewright.views.run import pictures

        return pictures(self, positive("count", count))

    def save_plan(self, path: str | Path) -> None:
        """Write what was chosen for every layer, to be used again as `plan`."""
        from tilewright.plan_file import write

        write(Path(path), self.plan, self.network)


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
    progress: Progress = False,
) -> RunResult:
    """Run a network over images on one rung.

    `net` is a name, a path, a `Network` or a dict; `weights` a path or a mapping of arrays. `data`
    is a name, a path, an array of images or a pair of images and labels; the first `images` of it
    are taken, `batch` at a time (default: 100). `device` is cpu (the default), opencl, cuda or one
    of several as in cuda:1; `rung` is how to compute, or a kernel file (default: our fastest on the
    device); `memory` how data travels on a GPU; `precision` fp16, tf32 or fp32 where a rung has the
    choice. `check` proves the rung first. `plan` is a file that `save_plan` wrote, which has
    device, rung, memory, batch and precision. `repeats` are forward passes; tables are of the last.
    `progress`: True for a bar, or a function that is told what is being done, how much of it is
    done and how much there is.
    """
    asked = request(
        net, weights, data, images, batch, device, rung, memory, precision, check, plan, repeats
    )
    title = str(net) if isinstance(net, str | Path) else "the network"
    with telling(progress) as tell:
        passed, built = (partial(tell, f"{title}, {what}") for what in ("images", "kernels built"))
        done = job.run(asked, passed, built, lambda doing: tell(doing, 0, 1))
        tell("measuring this device's limits", 0, 1)
        made = beside_peak(record(done))
    outputs = done.outputs.reshape(-1, *done.network.output_shape)
    return RunResult(made, done.network, done.plan, done.dataset, outputs, done.predicted)
