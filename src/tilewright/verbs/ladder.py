"""`tilewright.ladder`: every rung of a device verified, then all of them timed in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import environment, plan_file
from tilewright.climb import NOBODY, Audience, Planned, climb, prepare
from tilewright.data.catalogue import Source
from tilewright.errors import TilewrightError
from tilewright.job import blaming
from tilewright.measure.samples import Rounds, usual_rounds
from tilewright.model.load import Net, Weights
from tilewright.model.network import Network
from tilewright.results.climbed import record
from tilewright.results.ladder import ALL, LadderRecord
from tilewright.rungs import resolve
from tilewright.runtime.device import Device
from tilewright.verbs.arguments import (
    Progress,
    Tell,
    device_of,
    memory_plan,
    names_in,
    on_cluster,
    one_or_several,
    own_rungs,
    positive,
    positive_or_none,
    quiet,
    telling,
)
from tilewright.verbs.result import KeptResult, Value, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType

IMAGES, QUICK_IMAGES = 100, 10
QUICK_IMAGES_ON_OPENCL = 4  # where that is PoCL, a first look at three rungs is to take seconds
QUICK_ROUNDS = Rounds(3, 9, 3.0)


@dataclass(frozen=True, repr=False, eq=False)
class LadderResult(KeptResult[LadderRecord]):
    """Every rung's proof and time. A rung that cannot run here has a row that says why."""

    @property
    def passed(self) -> bool:
        """Whether no rung computes something wrong."""
        return all(row.verification is None or row.verification.passed for row in self.record.rows)

    def report(self) -> Iterator[RenderableType]:
        from tilewright.views import ladder as view

        return view.report(self.record)

    def rows(self) -> list[dict[str, Value]]:
        """A row a rung."""
        return table_of(self.record.rows)


@quiet
def ladder(
    net: Net = "ece408",
    *,
    weights: Weights | None = None,
    data: Source | None = None,
    images: int | None = None,
    batch: int = 100,
    device: str | Device = "cpu",
    memory: str | None = None,
    rungs: str | Sequence[str] = (),
    against: str | None = None,
    quick: bool = False,
    prove: bool = False,
    repeats: int | None = None,
    rung: str | Path | Sequence[str | Path] = (),
    plan: str | Path | Sequence[str | Path] = (),
    on: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    progress: Progress = False,
) -> LadderResult:
    """Verify rungs of a device, then time all of them in turns.

    `net`, `weights`, `data`, `device`, `memory` and `progress` are as for `run`; `memory` may be
    all: each rung under each of them. Weights or data that are not given are made, and the result
    says so. `images` are those of each round (default: 100; if `quick` 10, on OpenCL 4), `batch` at
    a time; `repeats` the timed rounds after one of warm-up (default: until times are certain).
    `rungs` are names, or a text with commas between them (default: all of the device), and `rung`
    is a kernel file, or several, to be among them. `against` names a rung that all are compared
    with. `quick` is a first look in seconds: a short proof, few images, few rounds. What was proven
    on this machine is believed as long as nothing has changed, unless it is to be proven again
    (`prove`). `plan` is a file that `tune` or a run's `save_plan` wrote, or several, and each has a
    row. `on`, `workers` and `address` are as for `run`: all workers prove, and one times.
    """
    there, travels = device_of(device), memory_plan(memory, ALL)
    size, rounds = positive("batch", batch), positive_or_none("repeats", repeats)
    few = QUICK_IMAGES_ON_OPENCL if there.kind == "opencl" else QUICK_IMAGES
    count = positive_or_none("images", images) or (few if quick else IMAGES)
    subject = prepare(net, weights, data, count, or_all=images is None)
    files = [Path(file) for file in one_or_several("plan", plan)]
    planned = [_planned(file, files, subject.network, there, size, travels) for file in files]
    climbing = partial(
        climb, subject.network, subject.dataset.images, there, size,
        rounds or (QUICK_ROUNDS if quick else usual_rounds(there)), travels,
        own=own_rungs(there, rung), names=names_in(rungs), against=against, short=quick,
        planned=planned,
    )  # fmt: skip
    with _watched(progress) as (tell, audience):
        if on_cluster(on, workers, address):
            from tilewright.cluster.ladder import climb_on

            found, machine = climb_on(climbing, there, workers, address, tell, audience)
        else:
            found = climbing(progress=tell, audience=audience, keep=True, anew=prove)
            machine = environment.fingerprint()
    return LadderResult(record(found, subject, there, size, travels, machine))


def _planned(
    file: Path,
    files: Sequence[Path],
    network: Network,
    device: Device,
    batch: int,
    memory: str | None,
) -> Planned:
    """A plan from a file, if what it was made for is what this ladder measures."""
    plan = plan_file.read(file, network)
    wanted = (
        ("--device", str(plan.device), str(device)),
        ("--batch", str(plan.batch), str(batch)),
        ("--memory", plan.memory, plan.memory if memory in (None, ALL) else memory),
    )
    for option, its, ours in wanted:
        if its != ours:
            raise TilewrightError(f"{file}: the plan is for {option} {its}, not {ours}")
    alike = [other for other in files if other.name == file.name]
    with blaming(file):
        return Planned(file.name if len(alike) == 1 else str(file), plan, resolve(plan))


@contextmanager
def _watched(progress: Progress) -> Iterator[tuple[Tell, Audience]]:
    """Whoever is told how far it is and, if nobody in particular is, what was found on the way."""
    if progress is True:
        from tilewright.views import live

        with live.watching() as show:
            yield show.progress, show
    else:
        with telling(progress) as tell:
            yield tell, NOBODY
