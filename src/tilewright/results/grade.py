"""The record of a class: `tilewright kernel grade --json` writes it, tables and pages show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tilewright.measure.samples import Sample
from tilewright.results.record import Rate, Record, Seconds, Share, about, an_image

Outcome = Literal[
    "right", "wrong", "does not compile", "stopped", "refused", "nothing to judge"
]  # fmt: skip


class Profile(Struct, frozen=True, kw_only=True):
    """How near a convolution comes to what the device can do."""

    flops: Annotated[Rate, about("operations of the convolution a second, warm")]
    share_of_peak: Annotated[float | None, about("of the measured peak, in float32")] = None
    share_of_memory: Annotated[
        float | None, about("the fewest bytes it can move, of what the memory moves in that time")
    ] = None


class Judged(Struct, frozen=True, kw_only=True):
    """What the judge found of one kernel."""

    outcome: Annotated[
        Outcome,
        about(
            "stopped: it crashed, hung or took more than it may; refused: it cannot be launched, "
            "or broke a rule of the contest"
        ),
    ]
    reason: Annotated[str, about("in words, several lines where that helps; empty if right")] = ""
    operations: Annotated[
        dict[str, tuple[Seconds, ...]],
        about("of each convolution over all images, every round; empty if it was not timed"),
    ] = {}
    baseline: Annotated[
        dict[str, tuple[Seconds, ...]],
        about("the same of the rung that all are compared with, in the same rounds"),
    ] = {}
    cold: Annotated[
        dict[str, tuple[Seconds, ...]],
        about("of each convolution with other data in the caches, every round"),
    ] = {}
    correct: Annotated[
        dict[str, Share], about("right answers of the network, by how many images there were")
    ] = {}

    profile: Annotated[
        dict[str, Profile], about("of each convolution; empty if it was not timed")
    ] = {}
    worst_share_of_bound: Annotated[
        float | None, about("the largest error seen as a share of what rounding allows")
    ] = None

    @property
    def total(self) -> Sample | None:
        return _total(self.operations)

    @property
    def baseline_total(self) -> Sample | None:
        return _total(self.baseline)


def _total(operations: Mapping[str, tuple[float, ...]]) -> Sample | None:
    """All convolutions together, round by round."""
    if not operations:
        return None
    return Sample(tuple(map(sum, zip(*operations.values(), strict=True))))


class Graded(Struct, frozen=True, kw_only=True):
    """A student's place."""

    student: str
    file: Annotated[str, about("from the folder of the class")]
    sha256: Annotated[str, about("of the file's content")]
    judged: Judged
    rank: Annotated[int | None, about("by time, among those that are right; from 1")]
    points: int


class GradeRecord(Record, frozen=True, kw_only=True, tag="tilewright.grade/1"):
    """A class: every submission judged alike. All times are in seconds."""

    folder: str
    seed: Annotated[int, about("of all inputs: the same for everybody")]
    images: Annotated[int, Meta(ge=1)]
    batch: Annotated[int, Meta(ge=1, description="images at a time")]
    compared_with: Annotated[str, about("the rung that all are compared with")]
    points_formula: str
    limit_seconds: Annotated[Seconds, about("for one submission")]
    submissions: tuple[Graded, ...]

    @property
    def headline(self) -> str:
        right = sum(each.judged.outcome == "right" for each in self.submissions)
        return f"{right} of {len(self.submissions)} right"

    @property
    def rungs(self) -> tuple[str, ...]:
        return tuple(each.student for each in self.submissions)

    @property
    def timings(self) -> Mapping[str, Sample]:
        totals = {each.student: each.judged.total for each in self.submissions}
        return {n: an_image(total.seconds, self.batch) for n, total in totals.items() if total}

    @property
    def untimed(self) -> Mapping[str, str]:
        return {each.student: each.judged.outcome for each in self.submissions if not each.rank}
