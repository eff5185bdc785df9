"""The GPU's own counters, as NVIDIA's ncu prints them: what a guided analysis goes by."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.profiling.stalls import REASONS, Stall, metric, shares, worst

TOOL = "ncu"
DURATION = "gpu__time_duration.sum"
THREADS = "smsp__thread_inst_executed_per_inst_executed.ratio"
# What is counted, by ncu's names; all but the threads of a warp in percent of what is possible.
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
COMPUTE = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
L2 = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.avg.pct_of_peak_sustained_elapsed"
METRICS = (DURATION, OCCUPANCY, THREADS, COMPUTE, DRAM, L2, SHARED)
WARP = 32
UNITS = {"ns": 1e-9, "nsecond": 1e-9, "us": 1e-6, "usecond": 1e-6, "ms": 1e-3, "msecond": 1e-3,
         "s": 1.0, "second": 1.0}  # fmt: skip
BOUND = 0.60  # a share of what is possible from which on it holds a kernel up
FEW_WARPS = 0.30


@dataclass(frozen=True)
class Counted:
    """A kernel's counters, averages of its launches by their time; shares from 0 to 1, None where
    ncu has none. `stalls` are where the time of a warp went, most first.
    """

    kernel: str
    launches: int
    seconds: float
    occupancy: float | None
    warp_efficiency: float | None
    compute: float | None
    dram: float | None
    l2: float | None
    shared: float | None
    stalls: tuple[Stall, ...] = ()

    @property
    def says(self) -> str:
        """What limits it, as a guided analysis would have it."""
        uses = {"compute": self.compute, "device memory": self.dram, "the L2 cache": self.l2,
                "shared memory": self.shared}  # fmt: skip
        known = {name: share for name, share in uses.items() if share is not None}
        if not known:
            return "nothing was counted"
        most = max(known, key=lambda name: known[name])
        if known[most] >= BOUND:
            return f"limited by {most}"
        if self.occupancy is not None and self.occupancy < FEW_WARPS:
            return "latency: too few warps"
        held = worst(self.stalls)
        return "latency: warps wait" if held is None else f"latency: {held.what.short}"


def refusal(text: str) -> str:
    """Why nothing was counted, in ncu's words or in better ones."""
    if "ERR_NVGPUCTRPERM" in text:
        return (
            "the driver lets only administrators read counters "
            "(NVreg_RestrictProfilingToAdminUsers=0 in its options allows everyone)"
        )
    said = [line for line in text.splitlines() if "==ERROR==" in line] or text.splitlines()[-1:]
    return f"{TOOL} says: {said[0].replace('==ERROR==', '').strip()}" if said else f"{TOOL} failed"


def parse(text: str) -> tuple[Counted, ...]:
    """Kernels in what `ncu --csv` prints, most expensive first; a line is a metric of a launch."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    launches: dict[str, dict[str, dict[str, float]]] = {}
    for line in csv.DictReader(io.StringIO("\n".join(lines))):
        value = _number(line.get("Metric Value"))
        if value is None or not line.get("Kernel Name") or not line.get("ID"):
            continue
        name, metric = line["Kernel Name"].split("(")[0], str(line.get("Metric Name"))
        if metric == DURATION:
            value *= UNITS.get(str(line.get("Metric Unit")), 1e-9)
        launches.setdefault(name, {}).setdefault(line["ID"], {})[metric] = value
    made = (_together(name, list(each.values())) for name, each in launches.items())
    return tuple(sorted(made, key=lambda each: -each.seconds))


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:  # n/a, where a GPU does not have a metric
        return None


def _together(name: str, launches: Sequence[Mapping[str, float]]) -> Counted:
    def mean(metric: str, whole: float) -> float | None:
        known = [(each[metric], each.get(DURATION, 1e-9)) for each in launches if metric in each]
        weight = sum(seconds for _, seconds in known)
        return sum(v * seconds for v, seconds in known) / weight / whole if weight else None

    compute, dram, l2, shared = (mean(each, 100.0) for each in (COMPUTE, DRAM, L2, SHARED))
    stalled = {each: mean(each, 1.0) for each in map(metric, REASONS)}
    return Counted(
        name, len(launches), sum(each.get(DURATION, 0.0) for each in launches),
        mean(OCCUPANCY, 100.0), mean(THREADS, WARP), compute, dram, l2, shared,
        shares({each: value for each, value in stalled.items() if value is not None}),
    )  # fmt: skip
