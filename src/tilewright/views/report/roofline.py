"""Roofline: every kernel's arithmetic against what its device can do at best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from tilewright.results.profile import ProfileRecord, RooflineRecord
from tilewright.views import units
from tilewright.views.names import short
from tilewright.views.report import charts
from tilewright.views.report.blocks import Block, Cell, Chart, Number, Section, Spec, Table, number
from tilewright.views.report.material import Material, profile_name

if TYPE_CHECKING:
    import altair as alt

    Channel = TypeVar("Channel", alt.X, alt.Y)

READING = (
    "Each mark is a kernel: further right it computes more for every byte that it must move, "
    "further up it is faster. No kernel can be above the line: its slope is the memory's speed, "
    "its flat part the arithmetic's, of each precision that was profiled. How far below its line a "
    "mark lies is what could be gained. "
    "Marks are larger the more time a kernel takes; shapes and colours say what holds it up."
)
HEIGHT = 380


def section(material: Material) -> Section:
    blocks: list[Block] = []
    for title, profiles in material.by_subject(ProfileRecord):
        if kernels := list(_kernels(profiles)):
            blocks.append(chart(title, profiles, kernels))
    return Section("roofline", "Roofline", READING, (*blocks, material.words_for("roofline")))


def _kernels(profiles: Sequence[ProfileRecord]) -> Iterator[tuple[ProfileRecord, RooflineRecord]]:
    for profile in profiles:
        for kernel in profile.roofline:
            if kernel.flop and kernel.least_bytes and kernel.seconds:
                yield profile, kernel


Kernels = Sequence[tuple[ProfileRecord, RooflineRecord]]


def chart(title: str, profiles: Sequence[ProfileRecord], kernels: Kernels) -> Chart:
    profile, best = max(kernels, key=lambda pair: pair[1].share_of_peak or 0.0)
    share = "" if best.share_of_peak is None else (
        f" Nearest to the peak: {short(best.name)} of {profile_name(profile)} with "
        f"{units.share(best.share_of_peak)}."
    )  # fmt: skip
    return Chart(
        title,
        f"{units.plural(len(kernels), 'kernel')} of {units.plural(len(profiles), 'profile')}."
        f"{share}",
        {"roofline": _spec(profiles, kernels)},
        table(title, kernels),
        HEIGHT,
    )


def _spec(profiles: Sequence[ProfileRecord], kernels: Kernels) -> Spec:
    import altair as alt

    rows = [
        {
            "kernel": short(kernel.name), "layers": ", ".join(kernel.layers),
            "rung": profile_name(profile), "intensity": kernel.flop / kernel.least_bytes,
            "rate": kernel.flop_per_second / 1e9, "ms": 1e3 * kernel.seconds,
            "time": units.seconds(kernel.seconds), "limit": kernel.limit,
            "held up by": kernel.limit.partition(":")[0],
            "of peak": "-" if kernel.share_of_peak is None else units.share(kernel.share_of_peak),
        }
        for profile, kernel in kernels
    ]  # fmt: skip
    roof = _roof(profiles, [float(str(row["intensity"])) for row in rows])
    x = _axis(alt.X, "intensity", "FLOP for each byte moved at least", [*rows, *roof])
    y = _axis(alt.Y, "rate", "GFLOP/s", [*rows, *roof])
    legend = charts.legend(sorted({str(row["held up by"]) for row in rows}), columns=3)
    points = (
        alt.Chart(charts.data(rows))
        .mark_point(filled=True, opacity=0.8)
        .encode(
            x=x, y=y,
            size=alt.Size("ms:Q", scale=alt.Scale(range=[30, 400]), legend=None),
            color=alt.Color("held up by:N", title=None, legend=legend),
            shape=alt.Shape("held up by:N", title=None, legend=legend),
            tooltip=charts.told_of(("kernel", "layers", "rung", "time", "of peak", "limit")),
        )
    )  # fmt: skip
    if not roof:
        return charts.spec(alt.layer(points), HEIGHT, rows)
    soft = alt.ExprRef(charts.SOFT)
    line = (
        alt.Chart(charts.data(roof))
        .mark_line(strokeWidth=2, color=soft)
        .encode(x=x, y=y, detail="roof:N")
    )
    ends = (roof[:1], [each for each in roof if each["end"]])
    names = [
        alt.Chart(charts.data(end))
        .mark_text(align=side, dy=away, color=soft)
        .encode(x=x, y=y, text=alt.Text("ceiling:N"))
        for end, side, away in zip(ends, ("left", "right"), (16, -10), strict=True)
    ]
    return charts.spec(alt.layer(line, *names, points), HEIGHT, rows, roof, *ends)


def _axis(channel: type[Channel], name: str, title: str, rows: Sequence[charts.Row]) -> Channel:
    """A logarithmic axis with room around all marks."""
    import altair as alt

    values = [float(str(row[name])) for row in rows]
    start, end = min(values) / 1.5, max(values) * 2
    scale = alt.Scale(type="log", domain=[start, end], nice=False)
    return channel(f"{name}:Q", scale=scale, title=title, axis=charts.log_axis(start, end))


def _roof(
    profiles: Sequence[ProfileRecord], intensities: Sequence[float]
) -> list[dict[str, object]]:
    """The highest ceilings that were measured of each precision, from the leftmost kernel to the
    rightmost; all have the memory's slope.
    """
    peaks: dict[str, float] = {}
    memory = 0.0
    for each in (profile.ceilings for profile in profiles):
        if each is not None and each.flops and each.bytes:
            peaks[each.precision] = max(each.flops, peaks.get(each.precision, 0.0))
            memory = max(memory, each.bytes)
    if not peaks:
        return []
    corners = {name: flops / memory for name, flops in peaks.items()}
    start = min(*intensities, *corners.values()) / 2
    end = 2 * max(*intensities, *corners.values())
    made: list[dict[str, object]] = []
    for name, flops in sorted(peaks.items(), key=lambda each: -each[1]):
        whose = f"{name}: " if len(peaks) > 1 else ""
        peak = f"{whose}{units.digits(flops / 1e9)} GFLOP/s"
        slope = [(start, f"{units.digits(memory / 1e9)} GB/s")] if not made else []
        for x, words in (*slope, (corners[name], ""), (end, peak)):
            made.append(
                {"intensity": x, "rate": min(flops, x * memory) / 1e9, "ceiling": words,
                 "roof": name, "end": x == end}
            )  # fmt: skip
    return made


def table(title: str, kernels: Kernels) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            short(kernel.name), profile_name(profile), ", ".join(kernel.layers),
            Number(units.milliseconds(kernel.seconds), kernel.seconds),
            Number(units.digits(kernel.flop_per_second / 1e9), kernel.flop_per_second),
            number(units.share(kernel.share_of_peak or 0.0), kernel.share_of_peak),
            Number(units.digits(kernel.bytes_per_second / 1e9), kernel.bytes_per_second),
            number(units.share(kernel.share_of_bandwidth or 0.0), kernel.share_of_bandwidth),
            kernel.limit,
        )
        for profile, kernel in kernels
    ]  # fmt: skip
    return Table(
        f"{title}: kernels whose work is known",
        (
            "kernel", "rung", "layers", ">time, ms", ">GFLOP/s", ">of peak", ">GB/s",
            ">of bandwidth", "what holds it up",
        ),
        rows,
    )  # fmt: skip
