"""Runs over parts of a data set as one run: what was counted and timed is added up."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tilewright.results.run import LayerTime, Phase, RunRecord, WorkerTime


def added(one: RunRecord, other: RunRecord) -> RunRecord:
    """Both parts as one: of the same network on the same rung."""
    known = None not in (one.correct, other.correct)
    correct = (one.correct or 0) + (other.correct or 0) if known else None
    images = one.images + other.images
    return replace(
        one,
        images=images,
        correct=correct,
        accuracy=None if correct is None else correct / images,
        layers=tuple(map(_both, one.layers, other.layers)),
        copy_seconds=one.copy_seconds + other.copy_seconds,
        copied_bytes=one.copied_bytes + other.copied_bytes,
        overlap_seconds=one.overlap_seconds + other.overlap_seconds,
        remainder_seconds=one.remainder_seconds + other.remainder_seconds,
        forward_seconds=one.forward_seconds + other.forward_seconds,
        peak_memory_bytes=max(one.peak_memory_bytes, other.peak_memory_bytes),
    )


def _both(one: LayerTime, other: LayerTime) -> LayerTime:
    assert one.name == other.name, (one.name, other.name)  # the same plan
    return replace(
        one,
        seconds=one.seconds + other.seconds,
        flop=one.flop + other.flop,
        executed_flop=one.executed_flop + other.executed_flop,
        least_bytes=one.least_bytes + other.least_bytes,
        launches=one.launches + other.launches,
    )


def finished(
    parts: RunRecord,
    data: str,
    phases: Sequence[Phase],
    through: str,
    workers: Sequence[WorkerTime],
) -> RunRecord:
    """What all parts came to, in the run that sent them out: its phases, one of which is that in
    which the images went `through` the workers.
    """
    seconds = sum(phase.seconds for phase in phases if phase.name == through)
    names = dict.fromkeys(each.device_name for each in workers if each.parts)
    return replace(
        parts,
        data=data,
        device_name=", ".join(names),
        phases=tuple(phases),
        total_seconds=sum(phase.seconds for phase in phases),
        images_per_second=parts.images / seconds,
        workers=tuple(workers),
        usage=None,
    )
