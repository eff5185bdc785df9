"""The record of a tuning: `tilewright tune --json` writes it, the tables show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct

from tilewright.measure.samples import Sample
from tilewright.results.ladder import Against, ConditionsRecord
from tilewright.results.record import Count, Record, Seconds, Timing, about, an_image, timing

if TYPE_CHECKING:
    from tilewright.results.record import Environment
    from tilewright.tune.outcome import Chosen, Entry, Tuned


class Part(Struct, frozen=True, kw_only=True):
    """What was chosen for a part of the network. Times are the kernels', of one batch, alone."""

    layers: Annotated[tuple[str, ...], Meta(min_length=1)]
    rung: str
    precision: str
    # Each rung has its own; a record only keeps them.
    options: Annotated[dict[str, Any], about("what the rung is told, such as tiles")]
    seconds: Annotated[Seconds | None, about("the median; null where nothing is computed")]
    own_seconds: Annotated[Seconds | None, about("of the rung's own choice for this part")]
    tried: Annotated[Count, about("candidates that were timed, or could not be, in all")]
    reason: Annotated[str, about("why the search of this part ended")]


class PlanRecord(Struct, frozen=True, kw_only=True):
    """A plan that was timed in the end, over all images and in turns with the others."""

    name: str
    searched: Annotated[bool, about("false for a rung with its own choice for every layer")]
    parts: tuple[Part, ...]
    network: Timing


class Problem(Struct, frozen=True, kw_only=True):
    """A candidate that was fast and wrong, or a rung's own choice that could not be timed."""

    part: str
    candidate: str
    problem: str


class TuneRecord(Record, frozen=True, kw_only=True, tag="tilewright.tune/1"):
    """A search for the fastest proven plan. All times are in seconds."""

    images: Annotated[int, Meta(ge=1, description="in each round of the whole network")]
    batch: Annotated[int, Meta(ge=1, description="images at a time")]
    precision: Annotated[str, about("the least that was asked for")]
    weights: Annotated[str, about("trained or random, in words")]
    budget_seconds: Annotated[Seconds, about("for the search")]
    candidates: Annotated[Count, about("that there were in all")]
    tried: Annotated[Count, about("that were timed, or could not be")]
    known: Annotated[Count, about("of these, from an earlier search")]
    plans: tuple[PlanRecord, ...]
    written: Annotated[str, about("the name of the plan that was written")]
    file: Annotated[str, about("where it was written")]
    net: Annotated[str, about("the network, as it was asked for")]
    gain: Annotated[
        Against | None,
        about("the fastest plan that was found against the fastest rung; null: they are the same"),
    ]
    wrong: tuple[Problem, ...]
    conditions: ConditionsRecord

    @property
    def best(self) -> PlanRecord:
        """The plan that was written."""
        return next(each for each in self.plans if each.name == self.written)

    @property
    def headline(self) -> str:
        return f"{self.best.network.images_per_second:,.0f} images/s on {self.written}"

    @property
    def rungs(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.plans)

    @property
    def timings(self) -> Mapping[str, Sample]:
        """The whole network by each plan."""
        plans = self.plans
        return {each.name: an_image(each.network.samples_seconds, self.images) for each in plans}

    @property
    def settings(self) -> Mapping[str, object]:
        return {"images": self.images, "batch": self.batch, "precision": self.precision}

    @property
    def notes(self) -> tuple[str, ...]:
        return self.conditions.notes


def record(
    tuned: Tuned,
    *,
    network: str,
    device: str,
    device_name: str,
    images: int,
    batch: int,
    precision: str,
    weights: str,
    budget: float,
    known: int,
    file: str,
    net: str,
    conditions: ConditionsRecord,
    environment: Environment,
) -> TuneRecord:
    """What a tuning came to."""
    gain = tuned.gain
    ends = None if gain is None else gain.interval.ends
    return TuneRecord(
        network=network, device=device, device_name=device_name, environment=environment,
        images=images, batch=batch, precision=precision, weights=weights, budget_seconds=budget,
        candidates=sum(len(span.candidates) for span in tuned.spans if span.computes),
        tried=sum(len(ending.tried) for ending in tuned.endings.values()),
        known=known,
        plans=tuple(_plan(entry, tuned, images) for entry in tuned.entries),
        written=tuned.best.name,
        file=file,
        net=net,
        gain=None if gain is None else Against(
            rung=tuned.single.name, times=gain.value, differs=gain.differs,
            interval=None if ends is None else (ends[0], ends[1]),
        ),
        wrong=tuple(
            Problem(part=each.span, candidate=str(each.candidate), problem=each.problem)
            for each in tuned.dropped
        ),
        conditions=conditions,
    )  # fmt: skip


def _plan(entry: Entry, tuned: Tuned, images: int) -> PlanRecord:
    return PlanRecord(
        name=entry.name,
        searched=entry.rung is None,
        parts=tuple(
            _part(chosen, step.rung, step.precision, tuned)
            for chosen, step in zip(entry.chosen, entry.plan.steps, strict=True)
        ),
        network=timing(tuned.samples[entry.name], images),
    )


def _part(chosen: Chosen, rung: str, precision: str, tuned: Tuned) -> Part:
    span, candidate = chosen.span, chosen.tried.candidate
    ending = tuned.endings.get(span.name)
    tried = () if ending is None else ending.tried
    own = [
        each.median for each in tried
        if each.candidate in span.own and each.candidate.rung == candidate.rung and each.seconds
    ]  # fmt: skip
    return Part(
        layers=span.layers, rung=rung, precision=precision, options=dict(candidate.plain),
        seconds=chosen.tried.median if chosen.tried.seconds else None,
        own_seconds=own[0] if own else None,
        tried=len(tried), reason="" if ending is None else ending.reason,
    )  # fmt: skip
