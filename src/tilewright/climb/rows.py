"""What a ladder is in the end: a row for every rung; and who is told of them as they come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tilewright.contest import Measured
from tilewright.measure.conditions import Conditions
from tilewright.measure.samples import Sample
from tilewright.plan import Plan
from tilewright.results.climbed import HOST
from tilewright.rungs import together
from tilewright.rungs.rung import Rung
from tilewright.truth.verify import Verdict


@dataclass(frozen=True)
class Ladder:
    """Every rung's row, in the ladder's order; the device in words and its measured peak FLOP/s.

    `seed` is what the order of the turns was drawn from; `notices` say what is wrong with the peak.
    `doubt` is the share of the processors' time that was others': ratios are uncertain by it.
    `against` names the rung that all are compared with, if it is not the one that each changes;
    `short` says that proofs were short ones.
    """

    device: str
    peak: float | None
    rows: list[Row]
    seed: int
    conditions: Conditions
    notices: tuple[str, ...] = ()
    doubt: float = 0.0
    against: str | None = None
    short: bool = False

    def changed(row: Row, rows: Sequence[Row], against: str | None = None) -> Row | None:
    """The row that a rung is to be compared with: of the rung it changes, in the same precision
    where that one has a choice, and under the same memory plan; None where there is none or it was
    not timed. What is not there in this precision is passed over for what it changes itself.
    `against` names another rung for all.
    """
    wanted = against or row.rung.against
    while wanted:
        named = [
            other for other in rows
            if other.measured and wanted in (other.rung.name, other.rung.label)
            and other.memory in (row.memory, None, HOST)
        ]  # fmt: skip
        for other in named:
            if against or not other.rung.precisions or other.rung.precision == row.rung.precision:
                return None if other is row else other
        wanted = named[0].rung.against if named else None
    return None
