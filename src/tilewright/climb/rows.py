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

    def changed(self, row: Row) -> Row | None:
        """The row that one of these is to be compared with."""
        return changed(row, self.rows, self.against)


@dataclass(frozen=True)
class Planned:
    """A plan to be among the rungs, and those that it names."""

    name: str
    plan: Plan
    rungs: Mapping[str, Rung]

    @property
    def rung(self) -> Rung:
        """What it is called, and compared by, on the ladder."""
        idea = "each layer as its plan says"
        whole, single = together(self.plan, self.rungs), len(self.rungs) == 1
        against = whole.name if single else None
        return replace(whole, name=self.name, idea=idea, against=against, precisions=())


@dataclass(frozen=True)
class Row:
    """A rung's place on the ladder. What could not be had is None, with the reason in `missing`.

    `memory` is its memory plan where the ladder has each rung under several, or the CPU on a
    GPU's ladder. `measured` is None where nothing was timed. `planned` is what it computes by, if
    that is a plan and not the rung's own choice. `place` counts the ladder's rungs, in whatever
    order they are proven.
    """

    rung: Rung
    missing: str | None = None
    verdict: Verdict | None = None
    measured: Measured | None = None
    memory: str | None = None
    planned: Planned | None = None
    place: int = 0

    @property
    def name(self) -> str:
        return self.rung.label if self.memory is None else f"{self.rung.label}, {self.memory}"

    @property
    def network(self) -> Sample | None:
        return None if self.measured is None else self.measured.network

    @property
    def ranked(self) -> Sample | None:
        """What it is compared by: the time on a GPU, where there is one. What copies take is the
        same for all rungs, and would make them alike.
        """
        return None if self.measured is None else self.measured.device or self.measured.network


class Audience(Protocol):
    """Who watches a climb."""

    def proven(self, row: Row) -> None:
        """A rung was proven, or found wrong, or does not fit."""

    def timed(self, name: str, seconds: float) -> None:
        """A turn of a row was timed."""


class Nobody:
    def proven(self, row: Row) -> None:
        pass

    def timed(self, name: str, seconds: float) -> None:
        pass


NOBODY = Nobody()


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
