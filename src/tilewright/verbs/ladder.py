"""`tilewright.ladder`: every rung of a device verified, then all of them timed in turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright import environment
from tilewright.climb import climb, prepare
from tilewright.data.catalogue import Source
from tilewright.measure.samples import Rounds
from tilewright.model.load import Net, Weights
from tilewright.results.climbed import record
from tilewright.results.ladder import LadderRecord
from tilewright.runtime.device import Device
from tilewright.verbs.arguments import (
    Progress,
    device_of,
    memory_plan,
    own_rungs,
    positive,
    positive_or_none,
    quiet,
    telling,
)
from tilewright.verbs.result import KeptResult, Value, table_of

if TYPE_CHECKING:
    from rich.console import RenderableType


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
    images: int = 100,
    batch: int = 100,
    device: str | Device = "cpu",
    memory: str | None = None,
    repeats: int | None = None,
    rung: str | Path | Sequence[str | Path] = (),
    progress: Progress = False,
) -> LadderResult:
    """Verify every rung of a device, then time all of them in turns.

    `net`, `weights`, `data`, `device`, `memory` and `progress` are as for `run`; without weights or
    data, random ones are taken, and the result says so. `images` are those of each round, `batch`
    at a time; `repeats` the timed rounds after one of warm-up (default: until times are certain).
    `rung` is a kernel file, or several, to be among the rungs.
    """
    on, plan = device_of(device), memory_plan(memory)
    size, rounds = positive("batch", batch), positive_or_none("repeats", repeats)
    subject = prepare(net, weights, data, positive("images", images))
    own = own_rungs(on, rung)
    with telling(progress) as tell:
        found = climb(
            subject.network, subject.dataset.images, on, size, rounds or Rounds(), plan, own=own,
            progress=tell,
        )  # fmt: skip
    return LadderResult(record(found, subject, on, size, plan, environment.fingerprint()))
