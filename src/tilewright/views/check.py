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


def lines(
    checked: Checked, sanitized: Sanitized | None, seed: int, width: int = WIDTH
) -> Iterator[str]:
    """One block a file. Lines of compilers and pictures are as long as they are."""
    claims = f", {checked.precision}" if checked.precision else ""
    yield f"{checked.path} ({checked.name}{claims})"
    if checked.idea:
        yield from _wrapped(checked.idea, width)
    if checked.choice:
        yield f"  with {checked.choice}:"
    if checked.outcome == "does not compile":
        yield from (f"  {line}" for line in checked.problem.split("\n"))
    elif checked.verdict is not None:
        yield "  compiles"
        yield from _verdict(checked, seed, width)
    else:
        yield from _wrapped(f"{checked.outcome}: {checked.problem}", width)
    if sanitized is not None:
        yield from _sanitized(sanitized, width)
    yield ""


def _verdict(checked: Checked, seed: int, width: int) -> Iterator[str]:
    verdict, diagnosis = checked.verdict, checked.diagnosis
    assert verdict is not None
    if diagnosis is None:
        if not checked.passed:
            yield from _wrapped(f"{checked.outcome}: {checked.problem}", width)
            return
        skipped = f"; {checked.skipped} trials are of layers that it is not for, or do not fit"
        yield from _wrapped(
            f"right: {units.plural(verdict.trials, 'trial')}, {units.count(verdict.outputs)} "
            f"outputs, worst {units.of_bound(verdict.worst)} of its bound"
            f"{skipped if checked.skipped else ''}",
            width,
        )
        return
    yield from diagnosed(diagnosis, width)
    yield f"  --seed {seed} gives the same numbers again"


def diagnosed(diagnosis: Diagnosis, width: int = WIDTH) -> Iterator[str]:
    """What is wrong, why, and where."""
    yield from _wrapped(f"WRONG: {diagnosis.headline}", width)
    if diagnosis.first:
        yield from _wrapped(diagnosis.first, width, "    ")
    for reason in diagnosis.reasons:
        yield from _wrapped(f"{reason.word}: {reason.text}", width, "  - ")
    yield from (f"    {line}" for line in diagnosis.picture)


def _sanitized(sanitized: Sanitized, width: int) -> Iterator[str]:
    if sanitized.problem:
        yield from _wrapped(f"not watched by {sanitized.tool}: {sanitized.problem}", width)
    elif not sanitized.findings:
        yield from _wrapped(f"{sanitized.tool}: {sanitized.looks_for}", width)
    for finding in sanitized.findings:
        yield from _wrapped(f"{sanitized.tool.upper()}: {finding.text}", width)
        for line, source in finding.lines:
            yield f"    line {line}: {source}"[:width]


def _wrapped(text: str, width: int, lead: str = "  ") -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=lead, subsequent_indent=" " * len(lead),
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
