"""Kernel files held to the proof, as `tilewright kernel check --json` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct

from tilewright.results.record import (
    Count,
    Environment,
    Seconds,
    Verification,
    about,
    verification,
)

if TYPE_CHECKING:
    from tilewright.judge.check import Checked
    from tilewright.truth.diagnose import Diagnosis
    from tilewright.truth.findings import Sanitized


class ReasonRecord(Struct, frozen=True, kw_only=True):
    """What is wrong, in a word that docs/checking.md explains, and what speaks for it."""

    word: str
    text: str
    certain: Annotated[bool, about("it was computed or seen, and explains all outputs")]


class DiagnosisRecord(Struct, frozen=True, kw_only=True):
    """What the first wrong output means; the likeliest reason first."""

    headline: str
    first: Annotated[str, about("the first wrong output and what it should be")]
    reasons: tuple[ReasonRecord, ...]
    picture: tuple[str, ...]


class FindingRecord(Struct, frozen=True, kw_only=True):
    """What Oclgrind or compute-sanitizer found, and at which lines of the file."""

    text: str
    lines: tuple[int, ...]


class FileRecord(Struct, frozen=True, kw_only=True):
    """One kernel file."""

    file: str
    name: str
    idea: str
    precision: Annotated[str, about("the class that it claims; empty if its header is not read")]
    outcome: Annotated[str, about("right, wrong, refused, does not compile or stopped")]
    problem: Annotated[str, about("why it was not tried to its end")]
    parameters: Annotated[str, about("the choice that failed, where it is not the first")]
    skipped_trials: Annotated[Count, about("of layers that the file is not for, or too large")]
    seconds: Seconds
    verification: Verification | None
    diagnosis: DiagnosisRecord | None
    simulated: Annotated[
        tuple[FindingRecord, ...] | None, about("null if that was not asked for, or not possible")
    ]


class CheckRecord(Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright.check/1"):
    """What became of every file."""

    device: Annotated[str, about("as it was asked for: opencl, cuda:1")]
    seed: Annotated[int, about("repeats the proof")]
    thorough: bool
    files: tuple[FileRecord, ...]
    environment: Environment


def record(
    found: Iterable[tuple[Checked, Sanitized | None]],
    device: str,
    seed: int,
    thorough: bool,
    environment: Environment,
) -> CheckRecord:
    return CheckRecord(
        device=device,
        seed=seed,
        thorough=thorough,
        files=tuple(_file(*each) for each in found),
        environment=environment,
    )


def _file(checked: Checked, sanitized: Sanitized | None) -> FileRecord:
    simulated = None
    if sanitized is not None and not sanitized.problem:
        simulated = tuple(
            FindingRecord(text=each.text, lines=tuple(line for line, _ in each.lines))
            for each in sanitized.findings
        )
    return FileRecord(
        file=checked.path,
        name=checked.name,
        idea=checked.idea,
        precision=checked.precision,
        outcome=checked.outcome,
        problem=checked.problem,
        parameters=checked.choice,
        skipped_trials=checked.skipped,
        seconds=checked.seconds,
        verification=None if checked.verdict is None else verification(checked.verdict),
        diagnosis=None if checked.diagnosis is None else _diagnosis(checked.diagnosis),
        simulated=simulated,
    )


def _diagnosis(found: Diagnosis) -> DiagnosisRecord:
    return DiagnosisRecord(
        headline=found.headline,
        first=found.first,
        reasons=tuple(
            ReasonRecord(word=each.word, text=each.text, certain=each.certain)
            for each in found.reasons
        ),
        picture=found.picture,
    )
