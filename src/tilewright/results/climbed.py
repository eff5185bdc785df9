"""The record of a climb: what was proven and timed, as it is written and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright.measure.samples import Sample, ratio
from tilewright.precision import FLOAT32
from tilewright.results.ladder import (
    Against,
    ConditionsRecord,
    Correctness,
    GpuLook,
    LadderRecord,
    LayerTiming,
    RungRecord,
)
from tilewright.results.record import Environment, Timing, timing, verification

if TYPE_CHECKING:
    from tilewright.climb import Ladder, Row, Subject
    from tilewright.contest import Measured
    from tilewright.measure.conditions import Conditions
    from tilewright.model.network import Network
    from tilewright.runtime.device import Device

HOST = "cpu"  # the memory plan of a row of the CPU on a GPU's ladder
# The course checks correctness at these numbers of images.
COURSE_SIZES = (100, 1000, 10_000)


def record(
    ladder: Ladder,
    subject: Subject,
    device: Device,
    batch: int,
    memory: str | None,
    environment: Environment,
) -> LadderRecord:
    """What a climb came to."""
    images = len(subject.dataset)
    return LadderRecord(
        network=subject.network.name,
        device=str(device),
        device_name=ladder.device,
        environment=environment,
        weights=subject.weights_note,
        data=subject.dataset.source,
        images=images,
        batch=batch,
        repeats=max((len(row.network.seconds) for row in ladder.rows if row.network), default=0),
        order_seed=ladder.seed,
        memory=memory,
        peak_flops=ladder.peak,
        peak_notices=ladder.notices,
        flop_an_image=subject.network.flops,
        doubt=ladder.doubt,
        against=ladder.against,
        short_proof=ladder.short,
        conditions=conditions_record(ladder.conditions),
        rows=tuple(
            _rung(row, ladder, subject.network, images, subject.dataset.labels)
            for row in ladder.rows
        ),
    )


def conditions_record(seen: Conditions) -> ConditionsRecord:
    return ConditionsRecord(
        spin_seconds=seen.spins,
        others_share=seen.others,
        stolen_share=seen.stolen,
        load_average=seen.load,
        gpu=tuple(
            GpuLook(megahertz=state.megahertz, throttled=state.throttled) for state in seen.gpu
        ),
        notes=tuple(seen.notes),
    )


def _rung(
    row: Row, ladder: Ladder, network: Network, images: int, labels: NDArray[np.int64] | None
) -> RungRecord:
    found = row.measured
    return RungRecord(
        rung=row.name,
        idea=row.rung.idea,
        vendor=row.rung.vendor,
        against=_against(row, ladder),
        missing=row.missing,
        verification=None if row.verdict is None else verification(row.verdict),
        executed_flop=row.rung.executed_flops(network),
        peak_share=_peak_share(row, network, images, ladder.peak),
        network=_timing(row.network, images),
        operations_mark=found.operations_mark if found else "",
        operations={
            name: timing(sample, images)
            for name, sample in (found.operations if found else {}).items()
        },
        copies=_timing(found.copies if found else None, images),
        copied_bytes=found.copied_bytes if found else 0,
        correctness=_correctness(row, labels),
        memory=row.memory,
        device_time=_timing(found.device if found else None, images),
        layers=_layers(found, network, images) if found else (),
        page_faults=found.page_faults if found else None,
    )


def _layers(found: Measured, network: Network, images: int) -> tuple[LayerTiming, ...]:
    stages = {stage.name: stage for stage in network.stages}
    order = list(stages)
    made = []
    for layers in sorted(found.layers, key=lambda names: order.index(names[0])):
        weighted = [name for name in layers if stages[name].parameter_shapes]
        kind = "network" if len(weighted) > 1 else stages[(weighted or list(layers))[0]].kind
        made.append(
            LayerTiming(layers=layers, kind=kind, time=timing(found.layers[layers], images))
        )
    return tuple(made)


def _timing(sample: Sample | None, images: int) -> Timing | None:
    return None if sample is None else timing(sample, images)


def _against(row: Row, ladder: Ladder) -> Against | None:
    """How many times as fast as the rung that it changes."""
    before = ladder.changed(row)
    if before is None or before.ranked is None or row.ranked is None:
        return None
    gain = ratio(before.ranked, row.ranked).doubted(ladder.doubt)
    ends = gain.interval.ends
    return Against(
        rung=before.name,
        times=gain.value,
        interval=None if ends is None else (ends[0], ends[1]),
        differs=gain.differs,
    )


def _peak_share(row: Row, network: Network, images: int, peak: float | None) -> float | None:
    """Of the measured peak, which is that of float32: operations that the rung really does."""
    if (
        not peak
        or row.ranked is None
        or row.memory == HOST
        or row.rung.precision.name != FLOAT32.name
    ):
        return None
    return images * row.rung.executed_flops(network) / row.ranked.median / peak


def _correctness(row: Row, labels: NDArray[np.int64] | None) -> tuple[Correctness, ...]:
    if labels is None or row.measured is None:
        return ()
    right = row.measured.predicted == labels
    sizes = [*(size for size in COURSE_SIZES if size < len(right)), len(right)]
    return tuple(Correctness(images=size, share=float(right[:size].mean())) for size in sizes)
