"""The record of a run: `tilewright run --json` writes it, the tables show it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct, convert

from tilewright.measure.samples import Sample
from tilewright.results.record import (
    Count,
    Rate,
    Record,
    Seconds,
    Share,
    Verification,
    about,
    an_image,
    verification,
)
from tilewright.trace import Event, busy_seconds

if TYPE_CHECKING:
    from tilewright.job import Result
    from tilewright.model.network import Stage

WHOLE = "forward"


class Phase(Struct, frozen=True, kw_only=True):
    """A part of the job."""

    name: str
    seconds: Seconds


class LayerTime(Struct, frozen=True, kw_only=True):
    """The kernel time of one layer over all images, with that of the layers fused into it.

    Those have rows of their own that say `within` which layer their time is. Several layers with
    weights that were computed as one piece are one row, named FIRST..LAST, of kind `network`.
    """

    name: str
    kind: str
    seconds: Seconds
    flop: Annotated[Count, about("over all images")]
    within: Annotated[str | None, about("the layer whose time includes it")] = None
    executed_flop: Annotated[Count, about("over all images, without taps that are left out")] = 0
    least_bytes: Annotated[Count, about("over all images, every buffer of a batch once")] = 0
    launches: Annotated[Count, about("of kernels, or of the host's computations")] = 0
    limit: Annotated[str, about("what holds it up, in words; empty if that is not known")] = ""


class Usage(Struct, frozen=True, kw_only=True):
    """What a process took of the machine, from its start."""

    user_seconds: Seconds
    system_seconds: Seconds
    elapsed_seconds: Seconds
    page_faults: Annotated[Count, about("that the system served")]

    @property
    def cpu_share(self) -> float:
        """Of one core."""
        return (self.user_seconds + self.system_seconds) / max(self.elapsed_seconds, 1e-9)


class Copies(Struct, frozen=True, kw_only=True):
    """What was copied in one direction during the forward phase."""

    direction: Annotated[str, about("host to device, device to host or device to device")]
    calls: Count
    bytes: Count
    seconds: Seconds


class Step(Struct, frozen=True, kw_only=True):
    """Consecutive layers computed in one go, and how."""

    layers: Annotated[tuple[str, ...], Meta(min_length=1)]
    rung: str
    precision: str | None = None
    # Each rung has its own; a record only keeps them.
    options: Annotated[dict[str, Any], about("what the rung was told, such as tiles")] = {}


class Plan(Struct, frozen=True, kw_only=True):
    """How the network was computed: every step with its layers and its rung."""

    network: str
    device: str
    memory: Annotated[str, about("host, managed, per-layer, resident or streamed")]
    batch: Annotated[int, Meta(ge=1)]
    precision: Annotated[str, about("of all steps, in words")]
    steps: tuple[Step, ...]
    files: Annotated[
        dict[str, str], about("where rungs come from that are not our own, by their names")
    ] = {}


class WorkerTime(Struct, frozen=True, kw_only=True):
    """What a worker process of a cluster did, and where its time went."""

    name: Annotated[str, about("its machine and process")]
    device_name: str
    images: Count
    parts: Annotated[Count, about("of the data set that it computed")]
    starting_seconds: Annotated[Seconds, about("device opened, kernels built and warmed up")]
    loading_seconds: Annotated[Seconds, about("images read")]
    computing_seconds: Annotated[Seconds, about("images through the network, answers compared")]
    waiting_seconds: Annotated[Seconds, about("for work, until the last worker was done")]
    lost: Annotated[bool, about("it ended in the middle, and another took its place")] = False


class RunRecord(Record, frozen=True, kw_only=True, tag="tilewright.run/1"):
    """One run of a network over a data set. All times are in seconds, all sizes in bytes.

    Of a run on a cluster, times of layers and copies are those of all workers together, and so is
    `forward_seconds`; phases and speed are what passed on the clock.
    """

    data: Annotated[str, about("what was read, in words")]
    images: Annotated[int, Meta(ge=1)]
    batch: Annotated[int, Meta(ge=1, description="images at a time")]
    rung: str
    label: Annotated[
        str, about("the rung among others: with its precision, if it has a choice of them")
    ]
    plan: Plan
    accuracy: Annotated[
        Share | None, about("share of right predictions; null where the data has no labels")
    ]
    correct: Count | None
    phases: Annotated[tuple[Phase, ...], about("the parts of the job in the order they happened")]
    layers: tuple[LayerTime, ...]
    copy_seconds: Annotated[Seconds, about("between host and device")]
    copied_bytes: Annotated[Count, about("between host and device")]
    overlap_seconds: Annotated[
        float, about("time in which several layers or copies went on together")
    ]
    remainder_seconds: Annotated[
        float, about("forward_seconds less the layers and the copies, plus their overlap")
    ]
    forward_seconds: Annotated[Seconds, about("wall time; of all workers, where there are any")]
    total_seconds: Annotated[Seconds, about("the whole job")]
    images_per_second: Annotated[Rate, about("images over the wall time of the forward phase")]
    peak_memory_bytes: Annotated[Count, about("of the process on the host")]
    proof: Annotated[
        Verification | None, about("what was tried before the run; null if nothing was")
    ] = None
    forward_samples: Annotated[
        tuple[Seconds, ...], about("of every repeat, the last of which all else is of")
    ] = ()
    peak_flops: Annotated[Rate | None, about("a second, measured, in float32")] = None
    usage: Annotated[Usage | None, about("of the process until it had its results")] = None
    workers: Annotated[
        tuple[WorkerTime, ...], about("of a cluster; none where one process did it all")
    ] = ()
    copies: Annotated[tuple[Copies, ...], about("copy_seconds by direction")] = ()

    @property
    def headline(self) -> str:
        return f"{self.images_per_second:,.0f} images/s on {self.label}"

    @property
    def rungs(self) -> tuple[str, ...]:
        return (self.label,)

    @property
    def timings(self) -> Mapping[str, Sample]:
        layers = {each.name: each.seconds for each in self.layers if each.seconds}
        seconds = {WHOLE: self.forward_seconds, **layers}
        samples: dict[str, tuple[float, ...]] = {name: (s,) for name, s in seconds.items()}
        samples[WHOLE] = self.forward_samples or samples[WHOLE]
        return {name: an_image(taken, self.images) for name, taken in samples.items()}

    @property
    def settings(self) -> Mapping[str, object]:
        workers = {"workers": len(self.workers)} if self.workers else {}
        return {"images": self.images, "batch": self.batch, "memory": self.plan.memory,
                "rung": self.label, "data": self.data, **workers}  # fmt: skip


def record(result: Result) -> RunRecord:
    """What a run came to."""
    trace, images = result.trace, len(result.dataset)
    forward = trace.phase_seconds(WHOLE)
    events, copies = trace.of("kernel", "host", "copy"), trace.of("copy")
    busy = busy_seconds(events)
    return RunRecord(
        network=result.network.name,
        device=str(result.plan.device),
        device_name=result.device,
        environment=result.environment,
        data=result.dataset.source,
        images=images,
        batch=result.plan.batch,
        rung=result.rung.name,
        label=result.rung.label,
        plan=_plan(result),
        accuracy=result.accuracy,
        correct=result.correct,
        phases=tuple(Phase(name=each.name, seconds=each.seconds) for each in trace.of("phase")),
        layers=tuple(layer_times(result)),
        copy_seconds=sum(event.seconds for event in copies),
        copied_bytes=sum(event.bytes for event in copies),
        overlap_seconds=sum(event.seconds for event in events) - busy,
        remainder_seconds=forward - busy,
        forward_seconds=forward,
        total_seconds=max(event.end for event in trace.of("phase")),
        images_per_second=images / forward,
        peak_memory_bytes=result.peak_memory_bytes,
        proof=None if result.proof is None else verification(result.proof),
        forward_samples=result.forward_samples,
        usage=None if result.usage is None else Usage(**asdict(result.usage)),
        copies=tuple(_copies(copies)),
    )


def _copies(copies: Sequence[Event]) -> Iterator[Copies]:
    for direction in dict.fromkeys(event.name for event in copies):
        found = [event for event in copies if event.name == direction]
        yield Copies(
            direction=direction,
            calls=len(found),
            bytes=sum(event.bytes for event in found),
            seconds=sum(event.seconds for event in found),
        )


def _plan(result: Result) -> Plan:
    plan = result.plan
    return convert({**asdict(plan), "device": str(plan.device), "precision": plan.precision}, Plan)


def layer_times(result: Result) -> list[LayerTime]:
    """Kernel time by layer, in the network's order, over the whole forward phase."""
    stages = {stage.name: stage for stage in result.network.stages}
    images = len(result.dataset)
    seconds: dict[tuple[str, ...], float] = {}
    launches: Counter[tuple[str, ...]] = Counter()
    for event in result.trace.of("kernel", "host"):
        seconds[event.layers] = seconds.get(event.layers, 0.0) + event.seconds
        launches[event.layers] += 1
    covered = {name for layers in seconds for name in layers}
    for name in stages:
        if name not in covered:  # nothing to compute: flattening, or pixels that are floats
            seconds[(name,)] = 0.0
    order = list(stages)
    rows = []
    for layers in sorted(seconds, key=lambda names: order.index(names[0])):
        parts = [stages[layer] for layer in layers]
        weighted = [stage for stage in parts if stage.parameter_shapes]
        main = (weighted or parts)[0]
        several = len(weighted) > 1
        rows.append(
            LayerTime(
                name=f"{layers[0]}..{layers[-1]}" if several else main.name,
                kind="network" if several else main.kind,
                seconds=seconds[layers],
                flop=sum(stage.flops for stage in parts) * images,
                executed_flop=result.rung.executed_flops_of(parts) * images,
                least_bytes=_bytes(parts, images, -(-images // result.plan.batch)),
                launches=launches[layers],
            )
        )
        for other in parts:
            if not several and other is not main:
                fused = LayerTime(name=other.name, kind=other.kind, seconds=0.0, flop=0,
                                  within=main.name)  # fmt: skip
                rows.append(fused)
    return rows


def _bytes(stages: Sequence[Stage], images: int, batches: int) -> int:
    """What must be moved at least: what is between fused layers need not be."""
    ends = math.prod(stages[0].input_shape) + math.prod(stages[-1].output_shape)
    return 4 * (images * ends + batches * sum(stage.parameter_count for stage in stages))
