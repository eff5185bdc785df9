"""The ceilings of a device: measured, kept, and measured again when they turn out too low.

A rate that was measured was reached, so the best one seen counts. A busy machine measures too low:
then it is said, and the next run measures again. So does a run that does more than its ceiling.
What is kept and cannot be is not believed: see `plausible`.
"""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import asdict, dataclass, replace

from tilewright import __version__
from tilewright.environment import cpu_cores
from tilewright.limits import rates_of
from tilewright.measure.conditions import Watch
from tilewright.measure.peak import measured_bandwidth, measured_peak
from tilewright.profiling.result import Ceilings, Profile
from tilewright.profiling.roofline import roofline
from tilewright.runtime.device import Device
from tilewright.store import Store, key_of, open_store

# More than any core (64 multiply-adds a cycle at 6 GHz are 0.8e12), any GPU's multiprocessor (with
# tensor cores), and any memory.
CORE_FLOPS, PROCESSOR_FLOPS, MOST_BYTES = 1e12, 1e14, 1e14
# Two measurements of a quiet machine are no further apart.
AGREE = 0.05
# How often a ceiling that a run has beaten is measured again before it is left at that.
MORE_TRIES = 3


@dataclass(frozen=True)
class Known:
    """Ceilings, and what disturbed the machine while they were measured: nothing, if empty."""

    ceilings: Ceilings
    disturbed: str


def ceilings(
    device: Device,
    name: str,
    precision: str = "fp32",
    at_least: float = 0.0,
    store: Store | None = None,
    rough: bool = False,
) -> tuple[Ceilings, str | None]:
    """Of a device, by its name in words; and what is wrong with them, if anything is.

    What was measured before on the same device by the same version is taken from the store, unless
    the machine was busy then or a run has since done `at_least` so many FLOP a second. `rough`: a
    busy machine's will do.
    """
    store = store or open_store("ceilings")
    key, processors = key_of("ceilings", __version__, name, precision), _processors(device)
    kept = _read(store.read(key), device)
    if kept is not None and (kept.ceilings.device, kept.ceilings.precision) != (name, precision):
        kept = None
    if kept is not None and kept.ceilings.processors != processors:
        kept = None
    trusted = kept is not None and (rough or not kept.disturbed)
    if kept is not None and trusted and not _beaten(kept.ceilings, at_least):
        return kept.ceilings, None
    best = measure(device, name, precision)
    if kept is not None:
        best = better(kept, best)
    for _ in range(MORE_TRIES):
        if _beaten(best.ceilings, at_least):
            best = better(best, measure(device, name, precision))
    problems = []
    if best.disturbed:
        problems.append(f"the ceilings may be too low: when they were measured, {best.disturbed}")
    content = {"disturbed": best.disturbed, **asdict(best.ceilings)}
    if (reason := store.keep(key, json.dumps(content).encode())) is not None:
        problems.append(f"the measured ceilings were not kept: {reason}")
    return best.ceilings, "; ".join(problems) or None


def measured_again(profile: Profile) -> Profile:
    """The profile with its device's ceilings measured again, if a kernel did more than they allow.

    A device that failed in the middle of a run does not answer any more.
    """
    found = profile.ceilings
    fastest = max((facts.executed_rate for facts in roofline(profile)), default=0.0)
    if found is None or not _beaten(found, fastest) or profile.stopped:
        return profile
    again, problem = ceilings(profile.device, profile.device_name, found.precision, fastest)
    notices = (*profile.notices, problem) if problem else profile.notices
    return replace(profile, ceilings=again, notices=notices)


def measure(device: Device, name: str, precision: str = "fp32") -> Known:
    """A second or so of arithmetic, copying, and the same arithmetic again."""
    watch = Watch(device)
    first, moved = measured_peak(device, precision), measured_bandwidth(device)
    second = measured_peak(device, precision)
    disturbed = [] if device.kind == "cuda" else watch.conditions().notes
    flops = None if first is None or second is None else max(first, second)
    if first and second and flops and min(first, second) < (1 - AGREE) * flops:
        disturbed.append(f"the peak came out as {first / 1e9:.4g} and {second / 1e9:.4g} GFLOP/s")
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    found = Ceilings(name, flops, moved, _processors(device), date, precision, *_units(device))
    return Known(found, "; ".join(disturbed))


def better(one: Known, other: Known) -> Known:
    """The higher of each rate; of two that agree, the one that nothing disturbed."""
    first, second = one.ceilings, other.ceilings
    higher, lower = (one, other) if (first.flops or 0) > (second.flops or 0) else (other, one)
    moved = max((rate for rate in (first.bytes, second.bytes) if rate), default=None)
    # A quiet machine that does no more shows that the higher rate was not too low.
    disturbed = higher.disturbed and lower.disturbed
    return Known(replace(higher.ceilings, bytes=moved), disturbed)


def plausible(found: Ceilings, device: Device) -> bool:
    """Whether a device could have such rates at all."""
    each = PROCESSOR_FLOPS if device.is_gpu else CORE_FLOPS
    most = each * max(1, found.processors)
    rates = ((found.flops, most), (found.loads, most), (found.index_operations, most))
    return all(
        rate is None or (type(rate) is float and math.isfinite(rate) and 0 < rate <= highest)
        for rate, highest in (*rates, (found.bytes, MOST_BYTES))
    )


def _beaten(found: Ceilings, rate: float) -> bool:
    return found.flops is not None and rate > found.flops


def _processors(device: Device) -> int:
    if not device.is_gpu:
        return cpu_cores()
    from tilewright.rungs.gpu.prepare import missing, open_runtime

    return 0 if missing(device) else open_runtime(device, "resident").limits.processors


def _units(device: Device) -> tuple[float | None, float | None]:
    """Loads and operations on whole numbers a second, where the architecture says how many."""
    from tilewright.runtime import cuda

    if device.kind != "cuda" or cuda.missing(device):
        return None, None
    rates = rates_of(cuda.gpu(device.index))
    return rates.loads, rates.index_operations


def _read(content: bytes | None, device: Device) -> Known | None:
    """What is kept, if it is whole and can be true; anything else is not there."""
    if content is None:
        return None
    try:
        kept = json.loads(content)
        disturbed = kept.pop("disturbed")
        found = Ceilings(**kept)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    whole = isinstance(disturbed, str) and isinstance(found.date, str)
    count = isinstance(found.processors, int) and found.processors >= 0
    return Known(found, disturbed) if whole and count and plausible(found, device) else None
