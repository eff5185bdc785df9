"""A submission as its owner's terminal shows it: where it is, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from rich.console import RenderableType

from tilewright.errors import TilewrightError
from tilewright.measure.samples import Sample, ratio
from tilewright.results.grade import Judged
from tilewright.views import units
from tilewright.views.table import Column, Table

Facts = Mapping[str, object]


def said(state: Facts) -> str:
    """Where it is, in a line."""
    if state["state"] == "waiting":
        return f"waiting: {state['position']} in the queue" if state["position"] else "waiting"
    if state["state"] == "judging":
        return f"being judged: {state['words']}" if state["words"] else "being judged"
    return "judged"


def verdict(state: Facts, url: str) -> Iterator[RenderableType]:
    """What came of it, and where its page is."""
    try:
        judged = msgspec.convert(state["judged"], Judged)
    except msgspec.ValidationError as error:
        raise TilewrightError(f"{url} says what this Tilewright does not know: {error}") from error
    yield f"{judged.outcome}: {state['file']}" + ("" if state["ranked"] else " (private)")
    if judged.reason.strip():
        yield judged.reason.strip()
    if judged.operations:
        yield times(judged, str(state["against"]))
    if judged.correct:
        yield correctness(judged)
    if state["disqualified"]:
        yield f"disqualified: {state['disqualified']}"
    if state["place"]:
        yield str(state["place"])
    yield f"{url}{state['path']}"


def times(judged: Judged, against: str) -> Table:
    """Each convolution, and all together, beside the rung that all are compared with."""
    made = Table(
        "",
        (
            *(Column("convolution"), Column("time", "number"), Column(against, "number")),
            *(Column("times as fast", "number"), Column("cold", "number")),
            *(Column("% of peak", "number"), Column("% of memory", "number")),
        ),
    )
    for name, seconds in judged.operations.items():
        cold, profile = judged.cold.get(name), judged.profile.get(name)
        made.add_row(
            name,
            *_compared(Sample(seconds), Sample(judged.baseline[name])),
            "" if cold is None else units.seconds(Sample(cold).median),
            _percent(profile.share_of_peak if profile else None),
            _percent(profile.share_of_memory if profile else None),
        )
    assert judged.total is not None and judged.baseline_total is not None
    made.add_row("all", *_compared(judged.total, judged.baseline_total), "", "", "")
    made.rules.add(len(made.rows) - 1)
    return made


def correctness(judged: Judged) -> str:
    """Right answers of the whole network, at each size."""
    found = (
        f"{units.fixed(share, 4)} of {units.plural(int(size), 'image')}"
        for size, share in judged.correct.items()
    )
    return f"correctness: {', '.join(found)}"


def _percent(share: float | None) -> str:
    return "" if share is None else units.digits(100 * share)


def _compared(mine: Sample, other: Sample) -> tuple[str, str, str]:
    faster = ratio(other, mine)
    return units.seconds(mine.median), units.seconds(other.median), units.times(faster.value)
