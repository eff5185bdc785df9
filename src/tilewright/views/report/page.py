"""The whole page from its material: which sections there are, in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.precision import FLOAT32
from tilewright.results import page as documents
from tilewright.results.ladder import LadderRecord
from tilewright.views import units
from tilewright.views.report import (
    calls,
    compiler,
    correctness,
    environment,
    ladder,
    layers,
    memory,
    milestone,
    optimizations,
    roofline,
    timeline,
)
from tilewright.views.report.blocks import Page, Section, Words
from tilewright.views.report.material import Material, row_name

SECTIONS: tuple[Callable[[Material], Section], ...] = (
    ladder.section,
    layers.section,
    roofline.section,
    memory.section,
    timeline.section,
    calls.section,
    compiler.section,
    correctness.section,
    optimizations.section,
    environment.section,
)


def page(material: Material, as_milestone: bool = False) -> Page:
    """`as_milestone`: in the course's order, what is missing named."""
    if as_milestone:
        sections = milestone.sections(material)
    else:
        sections = [each for make in SECTIONS if _has_something(each := make(material))]
    networks = list(dict.fromkeys(record.network for record in material.records))
    machines = list(dict.fromkeys(record.environment.machine for record in material.records))
    dates = sorted(record.environment.date[:10] for record in material.records)
    when = dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}"
    return Page(
        f"{', '.join(networks)}: from a for-loop to one fused kernel",
        f"Measured on {'; '.join(machines)}, {when}.",
        [fact for record in material.ladders for fact in _facts(record)][:8],
        sections,
        documents.text(material.records),
    )


def _facts(record: LadderRecord) -> Sequence[tuple[str, str]]:
    """Compared is what is computed in float32; the fastest in less is named."""
    every = [(time.median_seconds, row, time) for row, time in record.ranked]
    exact = [each for each in every if each[1].precision == FLOAT32.name]
    own = [each for each in exact if not each[1].vendor]
    if not own:
        return ()
    where = f"images/s, {record.network} on {record.device}"
    seconds, best, time = min(own, key=lambda each: each[0])
    first_seconds, first, _ = own[0]
    found = [(f"{where}, {row_name(best)}", units.count(time.images_per_second))]
    if best is not first:
        found.append((f"as fast as {row_name(first)}", units.times(first_seconds / seconds)))
    libraries = [(each[0], each[1].rung) for each in exact if each[1].vendor]
    if libraries:
        library, name = min(libraries)
        found.append((f"as fast as {name}", units.times(library / seconds)))
    least, quickest, rate = min(
        (each for each in every if not each[1].vendor), key=lambda each: each[0]
    )
    if least < seconds:
        found.append((f"images/s, {row_name(quickest)}", units.count(rate.images_per_second)))
    return found


def _has_something(section: Section) -> bool:
    """A section without anything but room for words is left out."""
    return any(not isinstance(block, Words) or block.markdown for block in section.blocks)
