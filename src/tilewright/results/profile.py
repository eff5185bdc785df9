"""The record of a profile: `tilewright profile --json` writes it, `--compare` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from tilewright.measure.samples import Sample
from tilewright.results.record import (
    MOST,
    Count,
    Operations,
    Rate,
    Record,
    Seconds,
    Share,
    about,
    an_image,
)
from tilewright.results.run import Phase

Size = tuple[Count, Count, Count]
RowKind = Literal["kernel", "host", "copy", "memset", "unified", "api", "layer", "profiler"]


class LayerRecord(Struct, frozen=True, kw_only=True):
    """A layer, with what one image takes."""

    name: str
    kind: str
    flops: Count
    input_bytes: Count
    output_bytes: Count
    parameter_bytes: Count
    inside_flops: Annotated[
        Count | None, about("without the taps of a convolution that fall outside the image")
    ] = None


class WallParts(Struct, frozen=True, kw_only=True):
    """Where the wall time went; the parts add up to it."""

    kernels: Seconds
    copies: Seconds
    launch_overhead: Seconds = field(name="launch overhead")
    host: Seconds
    idle: Seconds
    profiler: Seconds


class CeilingsRecord(Struct, frozen=True, kw_only=True):
    """What the device does at best, a second, as measured on that date."""

    device: str
    flops: Rate | None
    bytes: Rate | None
    processors: Count
    date: str
    precision: str
    loads: Annotated[Rate | None, about("a second, by the GPU's architecture and clock")] = None
    index_operations: Annotated[
        Rate | None, about("a second, by the GPU's architecture and clock")
    ] = None


class Shape(Struct, frozen=True, kw_only=True):
    """How a kernel was launched."""

    grid: Size
    block: Size


class RowRecord(Struct, frozen=True, kw_only=True):
    """Events of one kind and name, summed up."""

    kind: Annotated[
        RowKind,
        about(
            "kernel: computation on the device; host: computation that the host did for it; "
            "copy, memset: data moved or filled; unified: memory shared by host and device; "
            "api: calls of the host; layer: the host's time in a step of the plan; profiler: "
            "reading records"
        ),
    ]
    name: Annotated[
        str,
        about("a kernel's or call's name; [memcpy HtoD], [memcpy DtoH], [memcpy DtoD] or [memset]"),
    ]
    layers: Annotated[
        tuple[str, ...],
        about(
            "the layers it was for; several, where they were fused or a row by name has those of "
            "all"
        ),
    ]
    calls: Annotated[int, Meta(ge=1, le=MOST)]
    seconds: Annotated[Seconds, about("of all calls")]
    average: Seconds
    minimum: Seconds
    maximum: Seconds
    bytes: Annotated[Count, about("moved by copies, filled by memsets")]
    smallest: Annotated[Count, about("bytes of the smallest")]
    largest: Annotated[Count, about("bytes of the largest")]
    count: Annotated[Count, about("what the records stand for: page faults of all groups")]
    flop: Annotated[Count | None, about("of all launches; null where it is not known")]
    least_bytes: Annotated[Count | None, about("every buffer of every launch once")]
    shapes: Annotated[
        tuple[Shape, ...], about("different launch shapes, at most 8 for each name and layers")
    ]
    more_shapes: Annotated[Count, about("launches of yet other shapes")]
    faulted: Annotated[Seconds, about("seconds of a kernel in which page faults were being served")]
    loads: Annotated[
        Operations,
        about("of its threads, from device and shared memory, as far as they were counted"),
    ] = 0.0
    index_operations: Annotated[
        Operations, about("on whole numbers, as far as they were counted")
    ] = 0.0
    array: Annotated[str, about("what copies are of; empty where that was not said")] = ""
    place: Annotated[str, about("the line of the program that asks for these copies")] = ""
    phase: Annotated[str, about("of the start, where it was then")] = ""


class StallRecord(Struct, frozen=True, kw_only=True):
    """A reason for which warps wait, by ncu's name, and its share of a warp's time."""

    reason: str
    share: Share


class CountersRecord(Struct, frozen=True, kw_only=True):
    """A kernel's counters as ncu read them: averages of launches, shares of what is possible."""

    kernel: str
    launches: Count
    seconds: Annotated[Seconds, about("of all launches, under ncu")]
    occupancy: Annotated[float | None, about("achieved: warps that were there, of those possible")]
    warp_efficiency: Annotated[float | None, about("threads of a warp that took part")]
    compute: float | None
    dram: float | None
    l2: float | None
    shared: float | None
    stalls: Annotated[
        tuple[StallRecord, ...], about("where the time of a warp went, most first")
    ] = ()


class RooflineRecord(Struct, frozen=True, kw_only=True):
    """A kernel whose work is known, and how near it comes to what the device can do."""

    name: str
    layers: tuple[str, ...]
    seconds: Seconds
    flop: Count
    executed_flop: Annotated[
        Count, about("without taps that the rung leaves out; the share of the peak is of these")
    ] = 0
    least_bytes: Count
    flop_per_second: float
    bytes_per_second: float
    share_of_peak: float | None
    share_of_bandwidth: float | None
    limit: Annotated[str, about("what holds it up, in words")]


class ProfileRecord(Record, frozen=True, kw_only=True, tag="tilewright.profile/1"):
    """One recorded run of a network over images. All times are in seconds, all sizes in bytes."""

    layers: Annotated[tuple[LayerRecord, ...], about("the network's layers in order")]
    data: Annotated[str, about("what was read, in words")]
    images: Annotated[
        Count, about("those that went through; fewer than asked for if `stopped` says why")
    ]
    batch: Annotated[Count, about("images at a time")]
    rung: str
    idea: Annotated[str, about("what the rung changes, in one sentence")]
    memory: Annotated[str, about("the memory plan")]
    source: Annotated[str, about("what the times come from, in words")]
    wall_seconds: Annotated[Seconds, about("of the recorded run")]
    wall_parts: WallParts
    timed_seconds: Annotated[tuple[Seconds, ...], about("the same run without recording")]
    slow_down: Annotated[float | None, about("wall_seconds over the median of timed_seconds")]
    ceilings: CeilingsRecord | None
    accuracy: Annotated[Share | None, about("null where the data has no labels")]
    dropped: Annotated[Count, about("records that were lost")]
    stopped: Annotated[str | None, about("why the run was cut short; null if it was not")]
    notices: tuple[str, ...]
    skips_taps: Annotated[bool, about("whether the rung leaves out taps outside the image")] = False
    start: Annotated[tuple[Phase, ...], about("what happened before the run, in order")] = ()
    start_rows: Annotated[
        tuple[RowRecord, ...], about("calls, copies and kernels before the run, if asked for")
    ] = ()
    page_faults: Annotated[Count | None, about("of the host, in the recorded run")] = None
    counters: Annotated[
        tuple[CountersRecord, ...], about("the GPU's own, by ncu, if asked for")
    ] = ()
    uncounted: Annotated[str | None, about("why there are no counters, if asked for")] = None
    rows: Annotated[
        tuple[RowRecord, ...],
        about("as printed: one for each kind and name, most expensive first"),
    ]
    detail: Annotated[tuple[RowRecord, ...], about("one for each kind, name and set of layers")]
    roofline: Annotated[
        tuple[RooflineRecord, ...], about("kernels whose work is known, most expensive first")
    ]

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.rung,)

    @property
    def timings(self) -> Mapping[str, Sample]:
        usable = self.timed_seconds and self.images
        return {"network": an_image(self.timed_seconds, self.images)} if usable else {}

    @property
    def settings(self) -> Mapping[str, object]:
        return {"images": self.images, "batch": self.batch, "memory": self.memory,
                "rung": self.rung, "data": self.data}  # fmt: skip
