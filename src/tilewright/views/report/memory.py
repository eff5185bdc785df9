"""Memory plans side by side: what each moves, how often, how long it takes, what overlaps."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.results.profile import ProfileRecord, RowRecord
from tilewright.views import units
from tilewright.views.report import charts
from tilewright.views.report.blocks import Block, Cell, Chart, Number, Section, Spec, Table
from tilewright.views.report.material import Material, profile_name

READING = (
    "The same network on the same images, with data travelling in different ways: one address "
    "space (managed), copies around every layer, everything on the device (resident), or batches "
    "on their way while others are computed (streamed). A bar is the time of one run, cut into "
    "what the machine was doing, without what recording it took; overlap is work that went on at "
    "the same time as other work."
)
PARTS = ("kernels", "copies", "launch overhead", "host", "idle")


def section(material: Material) -> Section:
    blocks: list[Block] = []
    for title, profiles in material.by_subject(ProfileRecord):
        plans = {profile.rung: set[str]() for profile in profiles}
        for profile in profiles:
            plans[profile.rung].add(profile.memory)
        several = [profile for profile in profiles if len(plans[profile.rung]) > 1]
        if several:
            blocks.append(chart(title, several))
    return Section("memory", "Memory plans", READING, (*blocks, material.words_for("memory")))


def chart(title: str, profiles: Sequence[ProfileRecord]) -> Chart:
    height = charts.rows_height(len(profiles))
    best = min(profiles, key=lambda each: seconds_of(each) / (each.images or 1))
    return Chart(
        title,
        f"The shortest: {profile_name(best)} with {units.seconds(seconds_of(best))} for "
        f"{units.plural(best.images, 'image')}.",
        {
            "time": _spec(profiles, "zero", height),
            "shares": _spec(profiles, "normalize", height),
        },
        table(title, profiles),
        height,
    )


def seconds_of(profile: ProfileRecord) -> float:
    """Of a run, as if nobody had recorded it."""
    return profile.wall_seconds - profile.wall_parts.profiler


def parts(profile: ProfileRecord) -> dict[str, float]:
    found = profile.wall_parts
    seconds = (found.kernels, found.copies, found.launch_overhead, found.host, found.idle)
    return dict(zip(PARTS, seconds, strict=True))


def _spec(profiles: Sequence[ProfileRecord], stack: str, height: int) -> Spec:
    rows = [
        {
            "rung": profile_name(profile), "part": part, "amount": 1e3 * seconds,
            "part place": place, "time": units.seconds(seconds),
            "share": units.share(seconds / (seconds_of(profile) or 1)),
        }
        for profile in profiles
        for place, (part, seconds) in enumerate(parts(profile).items())
        if seconds
    ]  # fmt: skip
    title = "share of the time" if stack == "normalize" else "ms"
    found = [part for part in PARTS if any(row["part"] == part for row in rows)]
    return charts.stacked(rows, found, title, stack, ("rung", "part", "time", "share"), height)


def table(title: str, profiles: Sequence[ProfileRecord]) -> Table:
    return Table(
        f"{title}: what memory plans move",
        (
            "rung and plan", ">run, ms", ">recording, ms", ">copies in", ">bytes in",
            ">copies out", ">bytes out", ">copying, ms",
            ">pages moved", ">page faults", ">faults, ms", ">overlap, ms",
        ),
        [_row(profile) for profile in profiles],
    )  # fmt: skip


def _row(profile: ProfileRecord) -> Sequence[Cell]:
    into = [row for row in profile.rows if row.name == "[memcpy HtoD]"]
    out = [row for row in profile.rows if row.name == "[memcpy DtoH]"]
    unified = [row for row in profile.rows if row.kind == "unified"]
    pages = [row for row in unified if row.name.startswith("pages ")]
    faults = [row for row in unified if "fault" in row.name]
    copying = _seconds(into) + _seconds(out)
    return (
        profile_name(profile),
        _milliseconds(seconds_of(profile)),
        _milliseconds(profile.wall_parts.profiler),
        _count(sum(row.calls for row in into)), _size(into),
        _count(sum(row.calls for row in out)), _size(out),
        _milliseconds(copying),
        Number(units.size(sum(row.bytes for row in pages)), sum(row.bytes for row in pages)),
        _count(sum(row.count for row in faults)),
        _milliseconds(_seconds(faults)),
        _milliseconds(overlap(profile)),
    )  # fmt: skip


def overlap(profile: ProfileRecord) -> float:
    """Seconds of kernels and copies that went on while others did."""
    busy = _seconds([row for row in profile.rows if row.kind in ("kernel", "copy", "memset")])
    return max(0.0, busy - profile.wall_parts.kernels - profile.wall_parts.copies)


def _seconds(rows: Sequence[RowRecord]) -> float:
    return sum(row.seconds for row in rows)


def _milliseconds(seconds: float) -> Cell:
    return Number(units.milliseconds(seconds), seconds)


def _count(value: int) -> Cell:
    return Number(units.count(value), value)


def _size(rows: Sequence[RowRecord]) -> Cell:
    value = sum(row.bytes for row in rows)
    return Number(units.size(value), value)
