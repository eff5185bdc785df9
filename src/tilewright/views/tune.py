"""A tuning as tables, from its record."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.measure.samples import CONFIDENCE
from tilewright.results.tune import Part, PlanRecord, TuneRecord
from tilewright.views import units
from tilewright.views.ladder import percent
from tilewright.views.plan import options, span
from tilewright.views.table import table


def report(tuned: TuneRecord) -> Iterator[RenderableType]:
    """Everything a person wants to know of a tuning, from top to bottom."""
    yield f"{tuned.network} on {tuned.device} ({tuned.device_name})"
    again = f", {units.count(tuned.known)} of them before" if tuned.known else ""
    yield (
        f"{tuned.precision}, {units.plural(tuned.batch, 'image')} at a time, {tuned.weights}; "
        f"{units.count(tuned.tried)} of {units.count(tuned.candidates)} candidates tried{again}\n"
    )
    yield _parts(tuned.best)
    yield ""
    yield _plans(tuned)
    yield ""
    yield from _words(tuned)


def _parts(plan: PlanRecord) -> RenderableType:
    rows = table(
        f"{plan.name}: kernels of one batch", "layers", "rung", "options", ">time", ">own choice",
        ">times", ">tried",
    )  # fmt: skip
    for part in plan.parts:
        rows.add_row(
            span(part.layers), part.rung, options(part.options),
            "-" if part.seconds is None else units.seconds(part.seconds),
            "-" if part.own_seconds is None else units.seconds(part.own_seconds),
            _times(part), units.count(part.tried),
        )  # fmt: skip
    return rows


def _plans(tuned: TuneRecord) -> RenderableType:
    rows = table(
        f"Whole network: {units.plural(tuned.images, 'image')}, in turns",
        "plan", ">time", ">± %", ">images/s", "file",
    )  # fmt: skip
    for plan in sorted(tuned.plans, key=lambda each: each.network.median_seconds):
        time = plan.network
        rows.add_row(
            plan.name, units.seconds(time.median_seconds), percent(time.sample.uncertainty),
            units.count(time.images_per_second), "written" if plan.name == tuned.written else "",
        )  # fmt: skip
    return rows


def _words(tuned: TuneRecord) -> Iterator[str]:
    reasons: dict[str, list[str]] = {}
    for part in tuned.best.parts:
        if part.tried > 1:
            reasons.setdefault(part.reason, []).append(span(part.layers))
    for reason, layers in reasons.items():
        yield f"{', '.join(layers)}: {reason}"
    for each in tuned.wrong:
        yield f"Dropped: {each.part} by {each.candidate}: {each.problem}"
    gain = tuned.gain
    if gain is None:
        yield f"Nothing is faster than {tuned.written}."
    else:
        ends = gain.interval
        where = "" if ends is None else f" ({CONFIDENCE:.0%}: {ends[0]:.3g} to {ends[1]:.3g})"
        times = f"{gain.times:.3g} times as fast as {gain.rung}{where}"
        if tuned.best.searched:
            yield f"{tuned.written}: {times}"
        else:
            yield f"What was found is {times}:"
            yield "not faster beyond doubt, so that the rung as it is was written."
    yield from tuned.notes
    yield f"\nWritten to {tuned.file}, every choice proven. To use it:"
    yield f"  tilewright run --net {shlex.quote(tuned.net)} --plan {shlex.quote(tuned.file)}"


def _times(part: Part) -> str:
    if not part.seconds or part.own_seconds is None:
        return "-"
    return units.times(part.own_seconds / part.seconds)
