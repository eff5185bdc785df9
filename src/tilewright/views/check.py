"""What was found of a kernel file: a block of lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.views import units

if TYPE_CHECKING:
    from tilewright.judge.check import Checked
    from tilewright.truth.diagnose import Diagnosis
    from tilewright.truth.findings import Sanitized

WIDTH = 100


def lines(checked: Checked, sanitized: Sanitized | None, seed: int) -> Iterator[str]:
    """One block a file."""
    claims = f", {checked.precision}" if checked.precision else ""
    yield f"{checked.path} ({checked.name}{claims})"
    if checked.idea:
        yield from _wrapped(checked.idea)
    if checked.choice:
        yield f"  with {checked.choice}:"
    if checked.outcome == "does not compile":
        yield from (f"  {line}" for line in checked.problem.split("\n"))
    elif checked.verdict is not None:
        yield "  compiles"
        yield from _verdict(checked, seed)
    else:
        yield from _wrapped(f"{checked.outcome}: {checked.problem}")
    if sanitized is not None:
        yield from _sanitized(sanitized)
    yield ""


def _verdict(checked: Checked, seed: int) -> Iterator[str]:
    verdict, diagnosis = checked.verdict, checked.diagnosis
    assert verdict is not None
    if diagnosis is None:
        if not checked.passed:
            yield from _wrapped(f"{checked.outcome}: {checked.problem}")
            return
        skipped = f"; {checked.skipped} trials are of layers that it is not for, or do not fit"
        yield (
            f"  right: {units.plural(verdict.trials, 'trial')}, {units.count(verdict.outputs)} "
            f"outputs, worst {units.of_bound(verdict.worst)} of its bound"
            f"{skipped if checked.skipped else ''}"
        )
        return
    yield from diagnosed(diagnosis)
    yield f"  --seed {seed} gives the same numbers again"


def diagnosed(diagnosis: Diagnosis) -> Iterator[str]:
    """What is wrong, why, and where."""
    yield from _wrapped(f"WRONG: {diagnosis.headline}")
    if diagnosis.first:
        yield from _wrapped(diagnosis.first, "    ")
    for reason in diagnosis.reasons:
        yield from _wrapped(f"{reason.word}: {reason.text}", "  - ")
    yield from (f"    {line}" for line in diagnosis.picture)


def _sanitized(sanitized: Sanitized) -> Iterator[str]:
    if sanitized.problem:
        yield from _wrapped(f"not watched by {sanitized.tool}: {sanitized.problem}")
    elif not sanitized.findings:
        yield from _wrapped(f"{sanitized.tool}: {sanitized.looks_for}")
    for finding in sanitized.findings:
        yield from _wrapped(f"{sanitized.tool.upper()}: {finding.text}")
        for line, source in finding.lines:
            yield f"    line {line}: {source}"[:WIDTH]


def _wrapped(text: str, lead: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
