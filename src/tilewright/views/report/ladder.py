"""The ladder: every rung's time on a log scale, its spread and its proof, and what it is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

from tilewright.results.ladder import LadderRecord, RungRecord
from tilewright.results.record import Timing, Verification
from tilewright.views import units
from tilewright.views.report import charts
from tilewright.views.report.blocks import (
    NONE,
    Block,
    Cell,
    Chart,
    Number,
    Paragraph,
    Section,
    Spec,
    Table,
    number,
)
from tilewright.views.report.material import Material, row_name, subject
from tilewright.views.report.origins import origin

READING = (
    "Each row is one way to compute the same network on the same images. The dot is the median of "
    "all rounds, the thick line its 95 % interval, the thin line the fastest and the slowest "
    "round; further left is faster. On a GPU it is the time in which the device computed; "
    "copies and waiting are in the table, for they are the same for all. On the logarithmic scale "
    "equal distances are equal factors."
)
SHORT_PROOF = (
    "short: an odd shape, this network's convolutions and the whole of it, every output held to "
    "its computed rounding bound. --full-proof tries some hundred networks more."
)
ON_DEVICE = "on the device "
WHOSE = ["own", "library"]


def section(material: Material) -> Section:
    blocks: list[Block] = []
    for record in material.ladders:
        blocks += ladder(record)
    if material.ladders:
        blocks.append(ideas(material.ladders))
    return Section("ladder", "The ladder", READING, (*blocks, material.words_for("ladder")))


def ladder(record: LadderRecord) -> Iterator[Block]:
    if record.ranked:
        yield chart(record)
    notes = [*record.conditions.notes, *record.peak_notices]
    if any(time.interval_seconds is None for _, time in record.ranked):
        notes.append("fewer than 6 rounds: nothing can be said about noise")
    if notes:
        yield Paragraph(f"{'; '.join(notes)}.", lead="How it was measured")
    if record.short_proof and record.ranked:
        yield Paragraph(SHORT_PROOF, lead="Proof")
    reasons = [
        f"{row.rung} computes something wrong: {row.verification.fault}"
        for row in record.rows
        if row.verification is not None and row.verification.fault is not None
    ]
    missing: dict[str, list[str]] = {}
    for row in record.rows:
        if row.missing:
            missing.setdefault(row.missing, []).append(row_name(row))
    reasons += [f"{', '.join(names)} cannot run here: {why}" for why, names in missing.items()]
    for reason in reasons:
        yield Paragraph(f"{reason}.", lead="Not timed")


def chart(record: LadderRecord) -> Chart:
    timed = record.ranked
    fastest_row, fastest = min(timed, key=lambda pair: pair[1].median_seconds)
    slowest_row, slowest = max(timed, key=lambda pair: pair[1].median_seconds)
    height = charts.rows_height(len(timed))
    return Chart(
        f"{subject(record)}: {units.count(record.images)} images, "
        f"{units.count(min(record.batch, record.images))} at a time",
        f"{len(timed)} rungs: from {row_name(slowest_row)} with "
        f"{units.seconds(slowest.median_seconds)} to {row_name(fastest_row)} with "
        f"{units.seconds(fastest.median_seconds)}, "
        f"{units.times(slowest.median_seconds / fastest.median_seconds)} as fast.",
        {"log scale": _spec(record, "log", height), "linear": _spec(record, "linear", height)},
        times(record),
        height,
    )


def _spec(record: LadderRecord, scale: Literal["log", "linear"], height: int) -> Spec:
    import altair as alt

    rows = [_facts(row, time, _library(record, row)) for row, time in record.ranked]
    base = alt.Chart(charts.data(rows)).encode(
        y=alt.Y("rung:N", sort=None, title=None),
        color=alt.Color("whose:N", sort=WHOSE, title=None, legend=alt.Legend(orient="top")),
        tooltip=[
            alt.Tooltip(f"{name}:N", title=title)
            for name, title in (
                ("rung", "rung"), ("time", "median"), ("spread", "rounds"), ("rate", "images/s"),
                ("proof", "proof"), ("library", "of the library"), ("ceiling", "of the peak"),
                ("idea", "idea"), ("origin", "from"),
            )
        ],
    )  # fmt: skip
    slowest = max(float(str(row["slowest"])) for row in rows)
    start = 0.8 * min(float(str(row["fastest"])) for row in rows) if scale == "log" else 0.0
    # Room for the figures beyond the slowest Vega finds by itself; a line of the axis is inside.
    end = max(slowest, 2.5 * start)
    x = alt.X(
        "median:Q", title=f"ms {ON_DEVICE if _on_device(record) else ''}for all images",
        scale=alt.Scale(type=scale, domain=[start, end], nice=False),
        axis=charts.log_axis(start, end) if start else alt.Axis(labelSeparation=8),
    )  # fmt: skip
    whole = base.mark_rule(strokeWidth=1).encode(x=alt.X("fastest:Q"), x2=alt.X2("slowest:Q"))
    interval = base.mark_rule(strokeWidth=5, opacity=0.5).encode(
        x=alt.X("low:Q"), x2=alt.X2("high:Q")
    )
    point = base.mark_point(filled=True, size=80, opacity=1).encode(
        x=x, shape=alt.Shape("whose:N", sort=WHOSE, legend=None)
    )
    label = base.mark_text(align="left", dx=9).encode(
        x=alt.X("slowest:Q"),
        text=alt.Text("time:N"),
        color=alt.ColorValue(alt.ExprRef(charts.SOFT)),
    )
    return charts.spec(alt.layer(point, whole, interval, label), height, rows)


def _facts(row: RungRecord, time: Timing, library: float | None) -> dict[str, object]:
    low, high = time.interval_seconds or (time.median_seconds, time.median_seconds)
    samples = time.samples_seconds
    return {
        "rung": row_name(row), "whose": WHOSE[row.vendor], "idea": row.idea,
        "origin": origin(row), "median": 1e3 * time.median_seconds, "low": 1e3 * low,
        "high": 1e3 * high, "fastest": 1e3 * min(samples), "slowest": 1e3 * max(samples),
        "time": units.seconds(time.median_seconds),
        "spread": f"{units.seconds(min(samples))} to {units.seconds(max(samples))}",
        "rate": units.count(time.images_per_second), "proof": proof(row.verification),
        "library": NONE if library is None else units.share(library / time.median_seconds),
        "ceiling": NONE if row.peak_share is None else units.share(row.peak_share),
    }  # fmt: skip


def _library(record: LadderRecord, of: RungRecord) -> float | None:
    """Seconds of the fastest library in the same precision."""
    same = [pair for pair in record.ranked if pair[0].vendor and pair[0].precision == of.precision]
    return min((time.median_seconds for _, time in same), default=None)


def proof(found: Verification | None) -> str:
    """Of a rung, in words. The worst is rounded down: less than a bound must not look like it."""
    if found is None:
        return "not proven"
    if not found.passed:
        return "WRONG"
    worst = NONE if found.worst is None else f"{math.floor(100 * found.worst) / 100:.2f}"
    return (
        f"{units.plural(found.trials, 'trial')}, {units.count(found.outputs)} outputs, "
        f"worst {worst} of its bound{f', on {found.proven}' if found.proven else ''}"
    )


def times(record: LadderRecord) -> Table:
    convolutions = _convolutions(record)
    on_device, faults = _on_device(record), any(row.page_faults for row in record.rows)
    rows: list[Sequence[Cell]] = []
    for row, time in record.timed:
        gain, ranked = row.against, row.device_time or time
        library = _library(record, row)
        share = None if library is None else library / ranked.median_seconds
        copies = row.copies.median_seconds if row.copies else None
        rows.append(
            (
                row_name(row) + row.operations_mark,
                *(_milliseconds(row.operations.get(name)) for name in convolutions),
                *([_milliseconds(row.device_time)] if on_device else []),
                _milliseconds(time),
                Number(
                    f"{units.milliseconds(min(time.samples_seconds))} to "
                    f"{units.milliseconds(max(time.samples_seconds))}",
                    min(time.samples_seconds),
                ),
                number(units.milliseconds(copies or 0.0), copies),
                *([number(units.count(row.page_faults or 0), row.page_faults)] if faults else []),
                Number(units.count(time.images_per_second), time.images_per_second),
                Number(f"{units.times(gain.times)} {gain.rung}", gain.times) if gain else NONE,
                number(units.share(share or 0.0), share),
                number(units.share(row.peak_share or 0.0), row.peak_share),
                proof(row.verification),
            )
        )
    return Table(
        f"{subject(record)}: times in ms over {units.count(record.images)} images, medians of "
        f"{units.plural(record.repeats, 'round')}",
        (
            "rung", *(f">{name}, ms" for name in convolutions),
            *([">on the device, ms"] if on_device else []), ">network, ms", ">range, ms",
            ">copies, ms", *([">page faults"] if faults else []), ">images/s", ">as fast as",
            ">of library", ">of peak", "proof",
        ),
        rows,
    )  # fmt: skip


def _on_device(record: LadderRecord) -> bool:
    """Whether rungs are ranked by the time in which a GPU computed."""
    return any(row.device_time is not None for row in record.rows)


def _convolutions(record: LadderRecord) -> list[str]:
    return list(dict.fromkeys(name for row, _ in record.timed for name in row.operations))


def _milliseconds(time: Timing | None) -> Cell:
    if time is None:
        return NONE
    return Number(units.milliseconds(time.median_seconds), time.median_seconds)


def ideas(ladders: Sequence[LadderRecord]) -> Table:
    """Every rung once, whatever networks it was timed on."""
    rows = {row.rung: row for record in ladders for row in record.rows}
    return Table(
        "What each rung is",
        ("rung", "idea", "from", "changes"),
        [
            (row.rung, row.idea, origin(row), row.against.rung if row.against else NONE)
            for row in rows.values()
        ],
    )
