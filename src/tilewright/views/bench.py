"""Kernels judged and ranked, as tables."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.measure.samples import CONFIDENCE, Sample, ratio
from tilewright.results.bench import COURSE_SIZES, BenchRecord, KernelRecord
from tilewright.views import units
from tilewright.views.table import Column, table

FEW = 4  # convolutions that have columns; of more, each has a row
SAMPLES = 6  # fewer allow no interval


def report(record: BenchRecord) -> Iterator[RenderableType]:
    """What the command prints, now or of a record that was kept."""
    timed = record.ranked
    yield (
        f"{record.network} on {record.device} ({record.device_name}): "
        f"{units.plural(record.batch, 'image')} a call"
    )
    yield f"{record.data}; {record.weights}\n"
    if timed:
        yield _ranking(timed)
        yield ""
        yield _operations(timed, list(timed[0].convolutions))
    if any(each.correct for each in record.kernels):
        yield ""
        yield _correctness([each for each in record.kernels if each.correct])
    yield ""
    for name, reason in record.untimed.items():
        yield f"REFUSED {name}: {reason}"
    yield from _notes(record, timed)


def _ranking(timed: list[KernelRecord]) -> RenderableType:
    rows = table(
        "Ranking", "\nkernel", ">\nrank", "\nclass", ">\nproof",
        Column("warm", "number", unit="ms"), ">\n± %", Column("cold", "number", unit="ms"),
        ">\ntimes", "\nits rival", ">% of\nlibrary", ">% of\npeak", ">% of\nmemory",
    )  # fmt: skip
    for row in timed:
        rival = next((other for other in timed if other.name == row.against), None)
        shares = (row.share_of_library, row.share_of_peak, row.share_of_memory)
        rows.add_row(
            row.name,
            units.count(row.rank) if row.rank else "-",
            row.precision,
            _proof(row),
            units.milliseconds(row.seconds),
            _percent(Sample(row.rounds)),
            units.milliseconds(Sample(row.cold_rounds).median),
            units.times(ratio(Sample(rival.rounds), Sample(row.rounds)).value) if rival else "-",
            rival.name if rival else "",
            *(units.digits(100 * share) if share else "-" for share in shares),
        )
    return rows


def _operations(timed: list[KernelRecord], names: list[str]) -> RenderableType:
    """Each convolution, warm and cold."""
    if len(names) <= FEW:
        columns = (
            Column(f"{name}\n{kind}", "number", unit="ms")
            for name in names for kind in ("warm", "cold")
        )  # fmt: skip
        rows = table("Convolutions", "\nkernel", *columns)
        for row in timed:
            times = (row.convolutions[name] for name in names)
            cells = (s for each in times for s in (each.warm_seconds, each.cold_seconds))
            rows.add_row(row.name, *(units.milliseconds(Sample(each).median) for each in cells))
        return rows
    columns = (Column(row.name, "number", unit="ms") for row in timed)
    rows = table("Convolutions, warm", "layer", *columns)
    for name in names:
        warm = (Sample(row.convolutions[name].warm_seconds) for row in timed)
        rows.add_row(name, *(units.milliseconds(each.median) for each in warm))
    return rows


def _correctness(rows: list[KernelRecord]) -> RenderableType:
    sizes = sorted({int(size) for row in rows for size in row.correct})
    made = table("Correct", "kernel", *(f">{units.plural(size, 'image')}" for size in sizes))
    for row in rows:
        made.add_row(row.name, *(units.fixed(row.correct[str(size)], 4) for size in sizes))
    return made


def _percent(sample: Sample) -> str:
    wide = sample.uncertainty
    return units.digits(100 * wide) if len(sample.seconds) >= SAMPLES else "?"


def _proof(row: KernelRecord) -> str:
    if row.worst_share_of_bound is None:
        return "-"
    return units.of_bound(row.worst_share_of_bound)


def _notes(record: BenchRecord, timed: list[KernelRecord]) -> Iterator[str]:
    yield (
        f"one call over {units.plural(record.batch, 'image')}, all convolutions; every kernel in a "
        "worker of its own, a library in this process"
    )
    yield (
        "proof: the largest error seen, as a share of what rounding allows; cold: with other data "
        f"in the caches; ±: {100 * CONFIDENCE:.0f} % interval of the median"
    )
    sizes = [int(size) for each in record.kernels for size in each.correct]
    if not sizes:
        yield "no labels came with the images: nothing is said of how many answers are right"
    elif max(sizes) < COURSE_SIZES[-1]:
        most = units.plural(max(sizes), "image")
        yield f"correct: of {most}, all that there are or were asked for"
    if record.overhead_seconds:
        took = units.seconds(record.overhead_seconds)
        yield f"asking a worker takes {took}, which is in every time"
    for note in (*record.notices, *record.notes):
        yield f"note: {note}"
    if not timed:
        yield "nothing was timed: every kernel was refused"
