"""Two profiles side by side as tables, what changed most first."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.profiling.compare import Change, Comparison
from tilewright.profiling.result import Profile
from tilewright.views import units
from tilewright.views.profile import images
from tilewright.views.table import table

TITLES = {
    "wall": "Where the wall time went",
    "layers": "Layer by layer: kernels and copies",
    "kernels": "Kernel by kernel, and copies",
    "calls": "API calls",
}


def report(comparison: Comparison) -> Iterator[RenderableType]:
    yield f"A: {_words(comparison.before)}"
    yield f"B: {_words(comparison.after)}"
    if comparison.per_image:
        yield "A and B ran over different numbers of images: times are those of one image"
    for profile in (comparison.before, comparison.after):
        for notice in profile.notices:
            yield f"note, {profile.rung}: {notice}"
        if profile.dropped:
            dropped = units.count(profile.dropped)
            yield f"{profile.rung}: {dropped} records were dropped: counts and times are too low"
        if profile.stopped:
            yield f"PARTIAL, {profile.rung}: {profile.stopped}"
    for name, changes in comparison.tables().items():
        if changes:
            yield ""
            yield _table(TITLES[name], changes, counted=name != "wall")
    yield "\nchange: B - A; times: how many times as fast B is"


def to_csv(comparison: Comparison) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "name", "before", "after", "calls_before", "calls_after"])
    for table_name, changes in comparison.tables().items():
        for change in changes:
            writer.writerow(
                [table_name, change.name, change.before, change.after, change.calls_before,
                 change.calls_after]
            )  # fmt: skip
    return text.getvalue()


def _table(title: str, changes: list[Change], counted: bool) -> RenderableType:
    calls = (">calls A", ">calls B") if counted else ()
    made = table(title, "name", *calls, ">A", ">B", ">change", ">times")
    for change in changes:
        counts = (units.count(change.calls_before), units.count(change.calls_after))
        made.add_row(
            change.name if len(change.name) <= 44 else f"{change.name[:43]}…",
            *(counts if counted else ()),
            _time(change.before),
            _time(change.after),
            _signed(change.seconds),
            _ratio(change),
        )
    return made


def _time(seconds: float) -> str:
    return units.seconds(seconds) if seconds else "-"


def _signed(seconds: float) -> str:
    text = units.seconds(seconds)
    return units.Quantity(f"+{text}", text.value, text.unit) if seconds > 0 else text


def _ratio(change: Change) -> str:
    if not change.before or not change.after:
        return "same" if change.before == change.after else "new" if change.after else "gone"
    return units.times(change.before / change.after)


def _words(profile: Profile) -> str:
    memory = "" if profile.memory == "host" else f", memory {profile.memory}"
    return (
        f"{profile.rung} on {profile.device} ({profile.device_name}){memory}, {profile.network} "
        f"over {images(profile)}"
    )
