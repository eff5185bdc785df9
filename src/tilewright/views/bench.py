"""Kernels judged and ranked, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from tilewright.judge.bench import Bench, Row
from tilewright.measure import CONFIDENCE, Sample, ratio
from tilewright.model.network import Network
from tilewright.views import units
from tilewright.views.console import table

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
        ">times\nits rival", "\n", ">% of\nlibrary", ">% of\npeak",
    )  # fmt: skip
    for row in timed:
        rank, rival, share = found.rank(row), rival_of(row, timed), peak_share(found, row, network)
        rows.add_row(
            str(rank) if rank else "-",
            row.entry.rung.label,
            row.entry.rung.precision.name,
            _proof(row),
            units.milliseconds(row.seconds),
            _percent(_together(row.warm)),
            units.milliseconds(_together(row.cold).median),
            units.times(ratio(_together(rival.warm), _together(row.warm)).value) if rival else "-",
            rival.entry.rung.label if rival else "",
            units.digits(100 * of_library) if (of_library := library_share(row, timed)) else "-",
            units.digits(100 * share) if share else "-",
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
        made.add_row(row.entry.rung.label, *(f"{row.correct[size]:.4f}" for size in sizes))
    return made


def rival_of(row: Row, timed: list[Row]) -> Row | None:
    """Whom a kernel changes, if that one took part."""
    named = (other for other in timed if other.entry.rung.name == row.entry.rung.against)
    return next(named, None)


def library_share(row: Row, timed: list[Row]) -> float | None:
    """The library's time as a share of the kernel's."""
    libraries = [other for other in timed if other.entry.inside and other is not row]
    return min(each.seconds for each in libraries) / row.seconds if libraries else None


def peak_share(found: Bench, row: Row, network: Network) -> float | None:
    """Operations that a kernel in float32 really does, of the device's measured peak."""
    peak, rung = found.ceilings.flops, row.entry.rung
    if not peak or row.entry.inside or rung.precision.name != found.ceilings.precision:
        return None
    stages = [stage for stage in network.stages if stage.name in row.warm]
    flops = sum(each.inside_flops if rung.skips_taps else each.flops for each in stages)
    return found.batch * flops / row.seconds / peak


def _together(samples: dict[str, Sample]) -> Sample:
    """All convolutions of a round."""
    return Sample(tuple(map(sum, zip(*(each.seconds for each in samples.values()), strict=True))))


def _percent(sample: Sample) -> str:
    wide = sample.uncertainty
    return units.digits(100 * wide) if len(sample.seconds) >= SAMPLES else "?"


def _proof(row: Row) -> str:
    if row.verdict is None:
        return "-"
    return f"{row.verdict.worst:.2f}"


def _notes(found: Bench, timed: list[Row]) -> Iterator[str]:
    yield (
        f"one call over {units.plural(found.batch, 'image')}, all convolutions; every kernel in a "
        "worker of its own, a library in this process"
    )
    yield (
        "proof: the largest error seen, as a share of what rounding allows; cold: with other data "
        f"in the caches; ±: {100 * CONFIDENCE:.0f} % interval of the median"
    )
    if found.overhead:
        yield f"asking a worker takes {units.seconds(found.overhead)}, which is in every time"
    for note in (*found.notices, *found.conditions.notes):
        yield f"note: {note}"
    if not timed:
        yield "nothing was timed: every kernel was refused"


def to_json(found: Bench, network: Network) -> list[dict[str, Any]]:
    timed = found.ranked()
    return [
        {
            "name": row.entry.rung.label,
            "judged": row.entry.judged,
            "library": row.entry.inside,
            "device": str(row.entry.device),
            "precision": row.entry.rung.precision.name,
            "refused": row.refused,
            "rank": found.rank(row),
            "worst_share_of_bound": row.verdict.worst if row.verdict and not row.refused else None,
            "trials": row.verdict.trials if row.verdict else None,
            "seed": row.verdict.seed if row.verdict else None,
            "share_of_library": library_share(row, timed) if row in timed else None,
            "share_of_peak": peak_share(found, row, network) if row in timed else None,
            "correct": {str(size): share for size, share in row.correct.items()},
            "convolutions": {
                name: {
                    "warm_seconds": list(row.warm[name].seconds),
                    "cold_seconds": list(row.cold[name].seconds),
                    "fingerprints": list(row.fingerprints[name]),
                }
                for name in row.warm
            },
        }
        for row in found.rows
    ]
