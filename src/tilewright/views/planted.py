"""Planted mistakes and what the proof said of each, then all of them in a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import RenderableType

from tilewright.views import units
from tilewright.views.check import WIDTH, diagnosed
from tilewright.views.colours import BROKEN, GOOD
from tilewright.views.table import Marked, table

if TYPE_CHECKING:
    from tilewright.truth.diagnose import Diagnosis
    from tilewright.truth.planted import Mistake
    from tilewright.truth.verify import Verdict


@dataclass(frozen=True)
class Outcome:
    """A mistake, the lines of the kernel that it changed, and what was found."""

    mistake: Mistake
    changes: Sequence[tuple[str, str]]
    verdict: Verdict
    diagnosis: Diagnosis | None


def report(
    rung: str, device: str, outcomes: Sequence[Outcome], width: int = WIDTH
) -> Iterator[RenderableType]:
    """Sentences of a diagnosis are broken to the width, which is then left as it is."""
    for each in outcomes:
        yield f"{rung} on {device}, planted: {each.mistake.words}"
        for before, after in each.changes:
            yield f"  - {before}"
            yield f"  + {after}"
        if each.verdict.fault is None:
            yield f"  NOT FOUND in {units.plural(each.verdict.trials, 'trial')}"
        elif each.diagnosis is None:
            yield f"  WRONG: {each.verdict.fault}"
        else:
            yield from diagnosed(each.diagnosis, width)
        yield ""
    rows = table(
        f"Mistakes planted into {rung}", "mistake", "what was planted", "found", ">trials",
        "diagnosis",
    )  # fmt: skip
    for each in outcomes:
        found = each.verdict.fault is not None
        words = each.diagnosis.words[:1] if each.diagnosis else ()
        rows.add_row(
            each.mistake.name, each.mistake.words,
            Marked("yes", GOOD) if found else Marked("NO", BROKEN),
            units.count(each.verdict.trials), ", ".join(words),
        )  # fmt: skip
    yield rows
