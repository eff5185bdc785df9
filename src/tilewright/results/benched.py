"""The record of a bench: what was proven and timed, as it is written and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.judge.bout import least_bytes
from tilewright.results.bench import BenchRecord, ConvolutionTimes, KernelRecord
from tilewright.results.climbed import conditions_record
from tilewright.results.record import Environment

if TYPE_CHECKING:
    from tilewright.climb import Subject
    from tilewright.judge.arena import Row
    from tilewright.judge.bench import Bench
    from tilewright.model.network import Network, Stage
    from tilewright.runtime.device import Device


def record(
    found: Bench,
    subject: Subject,
    device: Device,
    unreadable: dict[str, str],
    environment: Environment,
) -> BenchRecord:
    """What a bench came to."""
    return BenchRecord(
        network=subject.network.name,
        device=str(device),
        device_name=found.device,
        environment=environment,
        weights=subject.weights_note,
        data=subject.dataset.source,
        images=len(subject.dataset),
        batch=found.batch,
        order_seed=found.seed,
        overhead_seconds=found.overhead,
        peak_flops=found.ceilings.flops,
        peak_bytes=found.ceilings.bytes,
        notices=found.notices,
        conditions=conditions_record(found.conditions),
        kernels=tuple(_kernel(found, row, subject.network) for row in found.rows),
        unreadable=unreadable,
    )


def _kernel(found: Bench, row: Row, network: Network) -> KernelRecord:
    timed, proven = found.ranked(), row.verdict
    return KernelRecord(
        name=row.entry.rung.label,
        judged=row.entry.judged,
        library=row.entry.inside,
        device=str(row.entry.device),
        precision=row.entry.rung.precision.name,
        refused=row.refused,
        rank=found.rank(row),
        worst_share_of_bound=proven.worst if proven and not row.refused else None,
        trials=proven.trials if proven else None,
        seed=proven.seed if proven else None,
        share_of_library=_library_share(row, timed) if row in timed else None,
        share_of_peak=_peak_share(found, row, network) if row in timed else None,
        share_of_memory=_memory_share(found, row, network) if row in timed else None,
        correct={str(size): share for size, share in row.correct.items()},
        convolutions={
            name: ConvolutionTimes(
                warm_seconds=row.warm[name].seconds,
                cold_seconds=row.cold[name].seconds,
                fingerprints=row.fingerprints[name],
            )
            for name in row.warm
        },
        against=_rival(row, timed),
    )


def _rival(row: Row, timed: list[Row]) -> str | None:
    """Whom a kernel changes, if that one took part."""
    rungs = (other.entry.rung for other in timed)
    return next((rung.label for rung in rungs if rung.name == row.entry.rung.against), None)


def _library_share(row: Row, timed: list[Row]) -> float | None:
    """The library's time as a share of the kernel's."""
    libraries = [other for other in timed if other.entry.inside and other is not row]
    return min(each.seconds for each in libraries) / row.seconds if libraries else None


def _peak_share(found: Bench, row: Row, network: Network) -> float | None:
    """Operations that a kernel in float32 really does, of the device's measured peak."""
    return peak_share(found, row, _timed_stages(row, network), row.seconds)


def peak_share(found: Bench, row: Row, stages: list[Stage], seconds: float) -> float | None:
    """The same of some convolutions."""
    peak, rung = found.ceilings.flops, row.entry.rung
    if not peak or row.entry.inside or rung.precision.name != found.ceilings.precision:
        return None
    flops = sum(each.inside_flops if rung.skips_taps else each.flops for each in stages)
    return found.batch * flops / seconds / peak


def _memory_share(found: Bench, row: Row, network: Network) -> float | None:
    """Bytes that must be moved at least, of what the device's memory moves in that time."""
    return memory_share(found, row, _timed_stages(row, network), row.seconds)


def memory_share(found: Bench, row: Row, stages: list[Stage], seconds: float) -> float | None:
    """The same of some convolutions."""
    if not found.ceilings.bytes or row.entry.inside:
        return None
    moved = sum(least_bytes(stage, found.batch) for stage in stages)
    return moved / seconds / found.ceilings.bytes


def _timed_stages(row: Row, network: Network) -> list[Stage]:
    return [stage for stage in network.stages if stage.name in row.warm]
