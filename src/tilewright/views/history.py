"""The history as tables: a list, one record as it was printed, two compared."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from tilewright.measure.samples import CONFIDENCE, Sample
from tilewright.results.bench import BenchRecord
from tilewright.results.changes import Change, Changes
from tilewright.results.grade import GradeRecord
from tilewright.results.history import Entry
from tilewright.results.ladder import LadderRecord
from tilewright.results.record import Record
from tilewright.results.run import RunRecord
from tilewright.results.tune import TuneRecord
from tilewright.views import bench, grade, ladder, run, tune, units
from tilewright.views.table import Column, table

# Columns of the list, so that it fits a line each.
WIDEST = {"network": 12, "device_name": 24}
FEWEST = 6  # samples that say how certain their median is


def entries(kept: Sequence[Entry]) -> RenderableType:
    rows = table(
        "History",
        ">id",
        "when (UTC)",
        "verb",
        "network",
        "device",
        Column("machine", spare=1),
        "result",
    )
    for entry in kept:
        rows.add_row(
            units.fixed(entry.id, 0), _moment(entry.date), entry.verb,
            _cut(entry.network, WIDEST["network"]), entry.device,
            _cut(_bare(entry.device_name), WIDEST["device_name"]), entry.headline,
        )  # fmt: skip
    return rows


def report(number: int, record: Record) -> Iterator[RenderableType]:
    """One record: where it comes from, then what its verb printed."""
    made = record.environment
    yield f"{number}: {_moment(made.date)} UTC, Tilewright {made.tilewright}, {made.machine}"
    yield f"$ {shlex.join(made.command)}\n"
    if isinstance(record, RunRecord):
        yield from run.report(record)
    elif isinstance(record, LadderRecord):
        yield from ladder.report(record)
    elif isinstance(record, TuneRecord):
        yield from tune.report(record)
    elif isinstance(record, BenchRecord):
        yield from bench.report(record)
    elif isinstance(record, GradeRecord):
        yield from grade.report(record)
    else:
        yield from _timings(record)


def _timings(record: Record) -> Iterator[RenderableType]:
    """Of a kind that has no tables of its own here."""
    yield f"{record.verb()} of {record.network} on {record.device} ({record.device_name})"
    yield f"{record.headline}\n"
    rows = table("Times", "timed", ">samples", ">an image", ">± %")
    for name, sample in record.timings.items():
        spread = ladder.percent(sample.uncertainty)
        rows.add_row(name, units.count(len(sample.seconds)), units.seconds(sample.median), spread)
    yield rows
    yield from (f"{name} was not timed: {reason}" for name, reason in record.untimed.items())
    yield "\n`tilewright history export --format json` has all of it"


def changes(numbers: tuple[int, int], found: Changes) -> Iterator[RenderableType]:
    for side, number, record in zip("AB", numbers, (found.before, found.after), strict=True):
        made = record.environment
        yield (
            f"{side}: {number}, {record.verb()} of {record.network} on {record.device}, "
            f"{_moment(made.date)} UTC, {made.machine}"
        )
        yield from (f"   {note}" for note in record.notes)
    if found.before.network != found.after.network:
        yield "\nThese are different networks: the times are of different work."
    if found.before.environment.machine != found.after.environment.machine:
        yield "\nThese are different machines: a change may be theirs."
    yield ""
    rows = table("Changes", "timed", ">A, an image", ">B, an image", ">times", ">± %", "change")
    for change in found.rows:
        rows.add_row(
            change.name, _median(change.before), _median(change.after), *_times(change),
            change.verdict,
        )  # fmt: skip
    yield rows
    if found.differences:
        yield "\nNot the same:"
        yield from (f"  {line}" for line in found.differences)
    yield (
        f"\ntimes: how many times as fast B is, ± half of its {100 * CONFIDENCE:.0f} % interval "
        f"by the samples of each, {FEWEST} at least; 1 of 20 misses, and what else changed "
        "between A and B is not in it"
    )


def _times(change: Change) -> tuple[str, str]:
    if change.times is None:
        return "-", "-"
    return units.times(change.times.value), ladder.percent(change.times.uncertainty)


def _median(sample: Sample | None) -> str:
    return "-" if sample is None else units.seconds(sample.median)


def _moment(date: str) -> str:
    """To the minute."""
    return date[:16].replace("T", " ")


def _bare(name: str) -> str:
    """A device's name without the marks of trade marks."""
    return name.replace("(R)", "").replace("(TM)", "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
