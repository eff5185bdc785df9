"""The record of a ladder: `tilewright ladder --json` writes it, the tables show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct, field

from tilewright.measure.conditions import BUSY
from tilewright.measure.samples import UNKNOWN, Interval, Ratio, Sample
from tilewright.precision import FLOAT32
from tilewright.results.record import (
    MOST_OPERATIONS,
    Count,
    Rate,
    Record,
    Seconds,
    Share,
    Timing,
    Verification,
    about,
    an_image,
)

ALL = "all"  # memory plans: each rung has a row for each
# Op times of a rung that computes the network as one piece were taken from convolutions on their
# own; those of a rung that fuses layers have the activation and pooling after them in it.
ALONE, TOGETHER = "*", "+"

LESS = ("fp16", "tf32x3", "tf32")  # precisions that names of rungs have in them


class GpuLook(Struct, frozen=True, kw_only=True):
    """A GPU at one moment between rounds."""

    megahertz: Count
    throttled: Annotated[tuple[str, ...], about("what held it back")]


class ConditionsRecord(Struct, frozen=True, kw_only=True):
    """What the machine did while something was timed."""

    spin_seconds: Annotated[
        tuple[Seconds, ...], about("of the same work, before, between and after rounds")
    ]
    others_share: Annotated[Share | None, about("of CPU time, of other processes")]
    stolen_share: Annotated[float | None, about("of CPU time, of other machines on the hardware")]
    load_average: float
    gpu: tuple[GpuLook, ...]
    notes: Annotated[tuple[str, ...], about("what may have disturbed the figures")]

    @property
    def busy(self) -> float:
        """The share of CPU time that was others', if it was worth mentioning."""
        others = self.others_share or 0.0
        return others if others > BUSY else 0.0


class Against(Struct, frozen=True, kw_only=True):
    """A rung compared with the one that it changes."""

    rung: str
    times: Annotated[float, Meta(ge=0, le=MOST_OPERATIONS, description="how many times as fast")]
    interval: tuple[float, float] | None
    differs: Annotated[bool, about("whether the two can be told apart")]

    @property
    def ratio(self) -> Ratio:
        return Ratio(self.times, UNKNOWN if self.interval is None else Interval(*self.interval))


class Correctness(Struct, frozen=True, kw_only=True):
    """The share of right predictions among the first images."""

    images: Count
    share: Share


class LayerTiming(Struct, frozen=True, kw_only=True):
    """The kernels of layers that were computed together, over all images."""

    layers: Annotated[tuple[str, ...], Meta(min_length=1)]
    kind: Annotated[str, about("of the layer with weights, if one is among them")]
    time: Timing


class RungRecord(Struct, frozen=True, kw_only=True):
    """A rung's place on the ladder; `missing` says why it could not run."""

    rung: Annotated[str, about("with its precision, if it has a choice of them")]
    idea: Annotated[str, about("what it changes, in one sentence")]
    vendor: Annotated[bool, about("whether it is a library's")]
    against: Against | None
    missing: str | None
    verification: Annotated[Verification | None, about("null where it was not verified")]
    executed_flop: Annotated[Count, about("for an image, without taps that it leaves out")]
    peak_share: Annotated[float | None, about("of the measured peak, in float32")]
    network: Annotated[Timing | None, about("null where it was not timed")]
    operations_mark: Annotated[
        str,
        about("*: the convolutions were timed on their own; +: with what is fused into them"),
    ]
    operations: Annotated[dict[str, Timing], about("of each convolution")]
    copies: Annotated[Timing | None, about("between host and device")]
    copied_bytes: Count
    correctness: Annotated[
        tuple[Correctness, ...],
        about("at 100, 1,000 and 10,000 images, and at all; empty without labels"),
    ] = ()
    memory: Annotated[
        str | None,
        about("its memory plan, where each rung has several; cpu: beside a GPU's ladder"),
    ] = None
    device_time: Annotated[
        Timing | None,
        about("in which a GPU computed: no copies, no waiting for the host; what ranks go by"),
    ] = None
    layers: Annotated[tuple[LayerTiming, ...], about("in the order they are computed")] = ()
    page_faults: Annotated[
        Count | None, about("of the host in a median round, those that brought pages back included")
    ] = None

    @property
    def ranked(self) -> Timing | None:
        """What it is compared by."""
        return self.device_time or self.network

    @property
    def precision(self) -> str:
        """The class that it is of, by its name: nothing wins in another."""
        return next((name for name in LESS if name in self.rung), FLOAT32.name)


class LadderRecord(Record, frozen=True, kw_only=True, tag="tilewright.ladder/2"):
    """Every rung of a device, proven and timed in turns. All times are in seconds."""

    weights: Annotated[str, about("trained or random, in words")]
    data: Annotated[str, about("what was read, in words")]
    images: Annotated[int, Meta(ge=1, description="in each round")]
    batch: Annotated[int, Meta(ge=1, description="images at a time")]
    repeats: Annotated[Count, about("rounds that were counted")]
    order_seed: Annotated[int, about("what the order of the turns was drawn from")]
    memory: Annotated[str | None, about("the memory plan that was asked for, or all")]
    peak_flops: Annotated[Rate | None, about("a second, measured, in float32")]
    peak_notices: tuple[str, ...]
    flop_an_image: Annotated[Count, about("every tap of a convolution counted")]
    doubt: Annotated[
        Share, about("the share of CPU time that was others': ratios are uncertain by it")
    ] = 0.0
    against: Annotated[str | None, about("the rung that all are compared with, if one is")] = None
    short_proof: Annotated[
        bool, about("whether only the network's own layers were tried, and the whole")
    ] = False
    conditions: ConditionsRecord
    rows: tuple[RungRecord, ...] = field(name="rungs")

    @property
    def timed(self) -> list[tuple[RungRecord, Timing]]:
        """The rungs that could be, with the time of the whole network."""
        return [(row, row.network) for row in self.rows if row.network is not None]

    @property
    def ranked(self) -> list[tuple[RungRecord, Timing]]:
        """Those that could be timed, with the time that they are compared by."""
        return [(row, time) for row in self.rows if (time := row.ranked) is not None]

    @property
    def headline(self) -> str:
        """The fastest rung of our own, or of anyone where we have none."""
        rates = [(row.vendor, -time.images_per_second, row.rung) for row, time in self.timed]
        if not rates:
            return "no rung was timed"
        _, rate, name = min(rates)
        return f"{-rate:,.0f} images/s on {name}"

    @property
    def rungs(self) -> tuple[str, ...]:
        return tuple(row.rung for row, _ in self.timed)

    @property
    def timings(self) -> Mapping[str, Sample]:
        """The whole network on each rung."""
        return {row.rung: an_image(time.samples_seconds, self.images) for row, time in self.timed}

    @property
    def untimed(self) -> Mapping[str, str]:
        rows = [row for row in self.rows if row.network is None]
        return {row.rung: row.missing or "it computes something wrong" for row in rows}

    @property
    def settings(self) -> Mapping[str, object]:
        return {"images": self.images, "batch": self.batch, "memory": self.memory,
                "weights": self.weights, "data": self.data}  # fmt: skip

    @property
    def disturbance(self) -> float:
        return self.doubt

    @property
    def notes(self) -> tuple[str, ...]:
        return self.conditions.notes
