"""Kernels judged and ranked, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.judge.arena import Row
from tilewright.judge.bench import COURSE_SIZES, Bench
from tilewright.measure.samples import CONFIDENCE, Sample, ratio
from tilewright.model.network import Network
from tilewright.results.benched import library_share, memory_share, peak_share
from tilewright.views import units
from tilewright.views.table import table

FEW = 4  # convolutions that have columns; of more, each has a row
SAMPLES = 6  # fewer allow no interval


def report(found: Bench, network: Network) -> Iterator[RenderableType]:
    timed = found.ranked()
    if timed:
        yield _ranking(found, timed, network)
        yield ""
        yield _operations(timed, list(timed[0].warm))
    if any(row.correct for row in found.rows):
        yield ""
        yield _correctness([row for row in found.rows if row.correct])
    yield ""
    for row in found.rows:
        if row.refused:
            yield f"REFUSED {row.entry.rung.label}: {row.refused}"
    yield from _notes(found, timed)


def _ranking(found: Bench, timed: list[Row], network: Network) -> RenderableType:
    rows = table(
        "", ">\nrank", "\nkernel", "\nclass", ">\nproof", ">warm\nms", ">\n± %", ">cold\nms",
        ">\ntimes", "\nits rival", ">% of\nlibrary", ">% of\npeak", ">% of\nmemory",
    )  # fmt: skip
    for row in timed:
        rank, rival = found.rank(row), rival_of(row, timed)
        shares = (
            library_share(row, timed),
            peak_share(found, row, network),
            memory_share(found, row, network),
        )
        rows.add_row(
            units.count(rank) if rank else "-",
            row.entry.rung.label,
            row.entry.rung.precision.name,
            _proof(row),
            units.milliseconds(row.seconds),
            _percent(_together(row.warm)),
            units.milliseconds(_together(row.cold).median),
            units.times(ratio(_together(rival.warm), _together(row.warm)).value) if rival else "-",
            rival.entry.rung.label if rival else "",
            *(units.digits(100 * share) if share else "-" for share in shares),
        )
    return rows


def _operations(timed: list[Row], names: list[str]) -> RenderableType:
    """Each convolution, warm and cold."""
    if len(names) <= FEW:
        columns = (f">{name}\n{kind}, ms" for name in names for kind in ("warm", "cold"))
        rows = table("", "\nkernel", *columns)
        for row in timed:
            cells = (s.median for name in names for s in (row.warm[name], row.cold[name]))
            rows.add_row(row.entry.rung.label, *map(units.milliseconds, cells))
        return rows
    rows = table("warm, ms", "layer", *(f">{row.entry.rung.label}" for row in timed))
    for name in names:
        rows.add_row(name, *(units.milliseconds(row.warm[name].median) for row in timed))
    return rows


def _correctness(rows: list[Row]) -> RenderableType:
    sizes = sorted({size for row in rows for size in row.correct})
    made = table("correct", "kernel", *(f">{units.plural(size, 'image')}" for size in sizes))
    for row in rows:
        made.add_row(row.entry.rung.label, *(units.fixed(row.correct[size], 4) for size in sizes))
    return made


def rival_of(row: Row, timed: list[Row]) -> Row | None:
    """Whom a kernel changes, if that one took part."""
    named = (other for other in timed if other.entry.rung.name == row.entry.rung.against)
    return next(named, None)


def _together(samples: dict[str, Sample]) -> Sample:
    """All convolutions of a round."""
    return Sample(tuple(map(sum, zip(*(each.seconds for each in samples.values()), strict=True))))


def _percent(sample: Sample) -> str:
    wide = sample.uncertainty
    return units.digits(100 * wide) if len(sample.seconds) >= SAMPLES else "?"


def _proof(row: Row) -> str:
    if row.verdict is None:
        return "-"
    return units.fixed(row.verdict.worst, 2)


def _notes(found: Bench, timed: list[Row]) -> Iterator[str]:
    yield (
        f"one call over {units.plural(found.batch, 'image')}, all convolutions; every kernel in a "
        "worker of its own, a library in this process"
    )
    yield (
        "proof: the largest error seen, as a share of what rounding allows; cold: with other data "
        f"in the caches; ±: {100 * CONFIDENCE:.0f} % interval of the median"
    )
    sizes = [size for row in found.rows for size in row.correct]
    if not sizes:
        yield "no labels came with the images: nothing is said of how many answers are right"
    elif max(sizes) < COURSE_SIZES[-1]:
        most = units.plural(max(sizes), "image")
        yield f"correct: of {most}, all that there are or were asked for"
    if found.overhead:
        yield f"asking a worker takes {units.seconds(found.overhead)}, which is in every time"
    for note in (*found.notices, *found.conditions.notes):
        yield f"note: {note}"
    if not timed:
        yield "nothing was timed: every kernel was refused"
