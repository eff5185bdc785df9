"""Records that a report has beside those of verbs: answers, timelines, kernels, plans;
one file for all.

A page is made from records alone, so that it can be made again, elsewhere and later.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

from msgspec import Struct

from tilewright.errors import TilewrightError
from tilewright.results import document
from tilewright.results.bench import BenchRecord
from tilewright.results.catalogue import KINDS
from tilewright.results.grade import GradeRecord
from tilewright.results.ladder import Correctness, LadderRecord
from tilewright.results.profile import ProfileRecord
from tilewright.results.record import Count, Record, Seconds, Share, about
from tilewright.results.run import RunRecord
from tilewright.results.tune import TuneRecord

SCHEMA = "tilewright.report/1"


class Mistake(Struct, frozen=True, kw_only=True):
    """An image that was taken for another class."""

    image: Annotated[Count, about("its place in the data set")]
    label: Count
    predicted: Count
    probability: Annotated[
        Share | None, about("that the network gave its answer; null where it ends without softmax")
    ]
    png: Annotated[str, about("the picture, in base64; empty where the data has no pixels")]


class AnswersRecord(Record, frozen=True, kw_only=True, tag="tilewright.answers/1"):
    """What a network answered to images whose classes are known."""

    data: str
    images: Count
    rung: str
    correctness: Annotated[
        tuple[Correctness, ...], about("at 100, 1,000 and 10,000 images, and at all")
    ]
    classes: Annotated[tuple[str, ...], about("their names, in order")]
    confusion: Annotated[
        tuple[tuple[Count, ...], ...], about("images by class, and by what they were taken for")
    ]
    mistakes: Annotated[tuple[Mistake, ...], about("those made most confidently, worst first")]

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.rung,)


class Span(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that went on from one moment to another."""

    kind: str
    name: str
    lane: str
    start: float
    end: float
    layers: tuple[str, ...] = ()


class TimelineRecord(Record, frozen=True, kw_only=True, tag="tilewright.timeline/1"):
    """The beginning of a recorded run, event by event."""

    rung: str
    memory: str
    images: Count
    batch: Count
    spans: tuple[Span, ...]
    left_out: Annotated[Count, about("later events, which are not here")]

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.rung,)


class LoopRecord(Struct, frozen=True, kw_only=True):
    """A loop of a computation, and where it went."""

    name: str
    extent: Count
    place: str


class KernelRecord(Struct, frozen=True, kw_only=True):
    """A kernel as the compiler made it; null where that is not known."""

    name: str
    layer: str
    grid: tuple[Count, ...]
    block: tuple[Count, ...]
    shared_bytes: Count
    constant_bytes: Count
    registers: Count | None
    spilled_bytes: Count | None
    occupancy: Share | None
    occupancy_limit: str | None
    limit: Annotated[str, about("what would hold it up at best")]
    best_seconds: Seconds
    loops: tuple[LoopRecord, ...]
    source: str


class KernelsRecord(Record, frozen=True, kw_only=True, tag="tilewright.kernels/1"):
    """The kernels of a rung for a network, compiled; nothing of it was run."""

    rung: str
    batch: Count
    target: Annotated[str, about("the GPU that limits are of, in words")]
    kernels: tuple[KernelRecord, ...]
    problems: Annotated[dict[str, str], about("why a layer has none")]

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.rung,)


class PlanRecord(Record, frozen=True, kw_only=True, tag="tilewright.planned/1"):
    """The plan of a run, as `run --plan` reads it."""

    rung: str
    plan: Annotated[str, about("what the file holds")]

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.rung,)


OF_PAGES: tuple[type[Record], ...] = (AnswersRecord, TimelineRecord, KernelsRecord, PlanRecord)
AnyRecord: TypeAlias = (
    RunRecord | LadderRecord | ProfileRecord | BenchRecord | GradeRecord | TuneRecord
    | AnswersRecord | TimelineRecord | KernelsRecord | PlanRecord
)  # fmt: skip
ALL = {kind.schema_id(): kind for kind in (*KINDS, *OF_PAGES)}


class _Head(Struct):
    schema: str = ""


class ReportDocument(Struct, frozen=True, tag=SCHEMA, tag_field="schema"):
    """All that a report is made from. All times are in seconds, all sizes in bytes."""

    records: tuple[AnyRecord, ...]


def text(records: Sequence[Record]) -> str:
    """All records as one JSON document."""
    lines = ",\n".join(document.line(record) for record in records)
    return f'{{"schema":"{SCHEMA}","records":[\n{lines}\n]}}\n'


def read(path: Path) -> tuple[Record, ...]:
    """The record in a file that a verb wrote with `--json`, or all of a report's."""
    content = document.content_of(path, "result")
    try:
        if document.decode(content, _Head).schema != SCHEMA:
            return (_record(content),)
        return document.decode(content, ReportDocument).records
    except ValueError as error:
        raise TilewrightError(f"{path} is no result of Tilewright: {error}") from error


def _record(content: bytes) -> Record:
    schema = document.decode(content, _Head).schema
    if schema not in ALL:
        raise ValueError(f"its schema is {schema[:60]!r}, and known are {', '.join(ALL)}")
    return document.decode(content, ALL[schema])
