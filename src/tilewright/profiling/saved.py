"""A profile as a file: JSON that comes back as it was, and CSV for spreadsheets.

`tilewright.results.profile` says what the JSON has; docs/profile.schema.json is made from it.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import get_args

import msgspec

from tilewright.errors import TilewrightError
from tilewright.profiling.counters import Counted
from tilewright.profiling.result import Ceilings, Layer, Profile
from tilewright.profiling.roofline import roofline
from tilewright.profiling.tally import Row
from tilewright.profiling.wall import Wall
from tilewright.results import document
from tilewright.results.profile import (
    CeilingsRecord,
    CountersRecord,
    LayerRecord,
    ProfileRecord,
    RooflineRecord,
    RowKind,
    RowRecord,
    Shape,
    WallParts,
)
from tilewright.results.run import Phase
from tilewright.runtime.device import Device
from tilewright.trace import Kind

KINDS: tuple[Kind, ...] = get_args(RowKind)
COLUMNS = (
    *("kind", "name", "layers", "calls", "seconds", "average", "minimum", "maximum"),
    *("bytes", "count", "flop", "least_bytes"),
)


def record(profile: Profile) -> ProfileRecord:
    """Everything, with what follows from it: `rows` by name as printed, `detail` by layers."""
    return ProfileRecord(
        network=profile.network,
        device=str(profile.device),
        device_name=profile.device_name,
        environment=profile.environment,
        layers=msgspec.convert(profile.layers, tuple[LayerRecord, ...], from_attributes=True),
        data=profile.data,
        images=profile.images,
        batch=profile.batch,
        rung=profile.rung,
        idea=profile.idea,
        memory=profile.memory,
        source=profile.source,
        wall_seconds=profile.wall.seconds,
        wall_parts=msgspec.convert(profile.wall.parts, WallParts),
        timed_seconds=profile.timed,
        slow_down=profile.slow_down,
        ceilings=msgspec.convert(profile.ceilings, CeilingsRecord | None, from_attributes=True),
        accuracy=profile.accuracy,
        dropped=profile.dropped,
        stopped=profile.stopped,
        notices=profile.notices,
        skips_taps=profile.skips_taps,
        start=tuple(Phase(name=name, seconds=seconds) for name, seconds in profile.start),
        start_rows=tuple(map(_row, profile.start_rows)),
        counters=msgspec.convert(
            profile.counters, tuple[CountersRecord, ...], from_attributes=True
        ),
        uncounted=profile.uncounted,
        page_faults=profile.page_faults,
        rows=tuple(map(_row, profile.named(*KINDS))),
        detail=tuple(map(_row, profile.rows)),
        roofline=tuple(
            RooflineRecord(
                name=facts.row.name,
                layers=facts.row.layers,
                seconds=facts.row.seconds,
                flop=facts.flops,
                executed_flop=facts.executed,
                least_bytes=facts.bytes,
                flop_per_second=facts.flop_rate,
                bytes_per_second=facts.byte_rate,
                share_of_peak=facts.flop_share,
                share_of_bandwidth=facts.byte_share,
                limit=facts.limit,
            )
            for facts in roofline(profile)
        ),
    )


def to_csv(profile: Profile) -> str:
    """The rows as printed, by name."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for row in profile.named(*KINDS):
        writer.writerow({**document.plain(_row(row)), "layers": " ".join(row.layers)})
    return text.getvalue()


def read(path: Path) -> Profile:
    """A profile that `tilewright profile --json` wrote."""
    kept = document.read(path, ProfileRecord, "profile")
    try:
        return profile_of(kept)
    except TilewrightError as error:
        raise TilewrightError(f"{path} is a broken profile: {error}") from error


def profile_of(kept: ProfileRecord) -> Profile:
    """What `record` was made from."""
    return Profile(
        network=kept.network,
        layers=msgspec.convert(kept.layers, tuple[Layer, ...], from_attributes=True),
        data=kept.data,
        images=kept.images,
        batch=kept.batch,
        device=Device.parse(kept.device),
        device_name=kept.device_name,
        rung=kept.rung,
        idea=kept.idea,
        memory=kept.memory,
        source=kept.source,
        rows=tuple(map(_from_row, kept.detail)),
        wall=Wall(kept.wall_seconds, msgspec.to_builtins(kept.wall_parts)),
        environment=kept.environment,
        timed=kept.timed_seconds,
        ceilings=msgspec.convert(kept.ceilings, Ceilings | None, from_attributes=True),
        accuracy=kept.accuracy,
        dropped=kept.dropped,
        stopped=kept.stopped,
        notices=kept.notices,
        skips_taps=kept.skips_taps,
        start=tuple((phase.name, phase.seconds) for phase in kept.start),
        start_rows=tuple(map(_from_row, kept.start_rows)),
        counters=msgspec.convert(kept.counters, tuple[Counted, ...], from_attributes=True),
        uncounted=kept.uncounted,
        page_faults=kept.page_faults,
    )


def _row(row: Row) -> RowRecord:
    kind = msgspec.convert(row.kind, RowKind)  # phases are no rows
    return RowRecord(
        kind=kind,
        name=row.name,
        layers=row.layers,
        calls=row.calls,
        seconds=row.seconds,
        average=row.average,
        minimum=row.minimum,
        maximum=row.maximum,
        bytes=row.bytes,
        smallest=row.smallest,
        largest=row.largest,
        count=row.count,
        flop=row.flops,
        least_bytes=row.least_bytes,
        shapes=tuple(Shape(grid=grid, block=block) for grid, block in row.shapes),
        more_shapes=row.more_shapes,
        faulted=row.faulted,
        loads=row.loads,
        index_operations=row.index_operations,
        array=row.array,
        place=row.place,
        phase=row.phase,
    )


def _from_row(kept: RowRecord) -> Row:
    return Row(
        kept.kind,
        kept.name,
        kept.layers,
        kept.calls,
        kept.seconds,
        kept.minimum,
        kept.maximum,
        kept.bytes,
        kept.smallest,
        kept.largest,
        kept.count,
        kept.flop,
        kept.least_bytes,
        tuple((shape.grid, shape.block) for shape in kept.shapes),
        kept.more_shapes,
        kept.faulted,
        kept.loads,
        kept.index_operations,
        kept.array,
        kept.place,
        kept.phase,
    )
