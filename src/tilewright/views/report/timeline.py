"""Timelines: the beginning of chosen runs, event by event, to zoom into."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.results.page import Span, TimelineRecord
from tilewright.views import units
from tilewright.views.report import charts
from tilewright.views.report.blocks import Block, Cell, Chart, Number, Section, Spec, Table
from tilewright.views.report.material import Material, profile_name, subject

READING = (
    "Time goes to the right; each lane is what one part of the machine did. Gaps in the device's "
    "lanes are time in which it waited. Shift and the wheel zoom, dragging moves, a double click "
    "goes back to the whole."
)
# Lanes of the host for each kind; the others are the device's, by stream.
HOST = {
    "layer": "host: layers", "api": "host: calls", "host": "host: computes", "phase": "host",
    "profiler": "host: recording",
}  # fmt: skip
# In the order of the page's colours, the same in every timeline.
KINDS = (
    "kernel", "copy", "api", "layer", "host", "unified", "profiler", "memset", "phase",
)  # fmt: skip
ROW = 30
TABLE_ROWS = 200


def section(material: Material) -> Section:
    blocks: list[Block] = [chart(each) for each in material.of(TimelineRecord) if each.spans]
    return Section("timeline", "Timeline", READING, (*blocks, material.words_for("timeline")))


def chart(record: TimelineRecord) -> Chart:
    found = dict.fromkeys(_lane(span) for span in record.spans)
    hosts = [*HOST.values()]
    lanes = sorted(found, key=lambda lane: hosts.index(lane) if lane in hosts else len(hosts))
    height = max(90, ROW * len(lanes))
    left_out = (
        f" Later events, {units.count(record.left_out)}, are not drawn." if record.left_out else ""
    )
    span = max(each.end for each in record.spans) - min(each.start for each in record.spans)
    return Chart(
        f"{profile_name(record)}: {subject(record)}, {units.plural(record.images, 'image')}",
        f"{units.plural(len(record.spans), 'event')} in {units.seconds(span)} on "
        f"{units.plural(len(lanes), 'lane')}.{left_out}",
        {"timeline": _spec(record, lanes, height)},
        table(record),
        height,
    )


def _lane(span: Span) -> str:
    if span.kind in HOST:
        return HOST[span.kind]
    return f"device: {span.lane or span.kind}"


def _spec(record: TimelineRecord, lanes: Sequence[str], height: int) -> Spec:
    import altair as alt

    first = min(span.start for span in record.spans)
    rows = [
        {
            "lane": _lane(span), "kind": span.kind, "name": span.name,
            "start": 1e3 * (span.start - first), "end": 1e3 * (span.end - first),
            "layers": ", ".join(span.layers), "time": units.seconds(span.end - span.start),
        }
        for span in record.spans
    ]  # fmt: skip
    kinds = [kind for kind in KINDS if any(span.kind == kind for span in record.spans)]
    zoom = alt.selection_interval(
        bind="scales", encodings=["x"], zoom="wheel![event.shiftKey]", name="zoom"
    )
    made = (
        alt.Chart(charts.data(rows))
        .mark_bar(height={"band": 0.7}, minBandSize=1, stroke=None, clip=True)
        .encode(
            y=alt.Y("lane:N", sort=list(lanes), title=None),
            x=alt.X("start:Q", title="ms", scale=alt.Scale(nice=False)),
            x2=alt.X2("end:Q"),
            color=alt.Color(
                "kind:N",
                title=None,
                legend=charts.legend(kinds),
                scale=alt.Scale(domain=KINDS),
            ),
            tooltip=charts.told_of(("name", "kind", "layers", "time")),
        )
        .add_params(zoom)
    )
    return charts.spec(made, height, rows)


def table(record: TimelineRecord) -> Table:
    first = min(span.start for span in record.spans)
    rows: list[Sequence[Cell]] = [
        (
            span.name, span.kind, _lane(span), ", ".join(span.layers),
            Number(units.milliseconds(span.start - first), span.start - first),
            Number(units.milliseconds(span.end - span.start), span.end - span.start),
        )
        for span in record.spans[:TABLE_ROWS]
    ]  # fmt: skip
    return Table(
        f"The first {units.plural(len(rows), 'event')} of {profile_name(record)}",
        ("name", "kind", "lane", "layers", ">start, ms", ">time, ms"),
        rows,
    )
