"""What the machine did while something was timed: its clock, other people's work, a GPU's limits.

A figure from a machine that was busy, or whose clock moved, is still a figure; whoever reads it is
told. Looked at between rounds, never while something is timed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from pathlib import Path

from tilewright import environment
from tilewright.environment import GpuState
from tilewright.runtime.device import CPU, Device

# A piece of work that only the clock makes faster, a millisecond or two; the best of a few tries
# is one that nothing came between.
SPIN, SPIN_TRIES = 100_000, 3
# From these on it is said: the clock's range, and shares of the CPU time.
CLOCK_MOVED, BUSY, STOLEN = 0.05, 0.05, 0.02
STATISTICS = Path("/proc/stat")


@dataclass(frozen=True)
class CpuTime:
    """Seconds of our cores together since some moment: all, not idle, taken by a hypervisor, ours.

    Of a machine that does not tell, `total` is 0.
    """

    total: float
    busy: float
    stolen: float
    own: float


@dataclass(frozen=True)
class Conditions:
    """What was seen: `spins` are seconds of the same work, before, between and after rounds.

    `others` and `stolen` are shares of the CPU time of the cores that we may use: of other
    processes, and of other machines on the same hardware; None where the system does not tell.
    `load` is the average number of running processes at the end.
    """

    spins: tuple[float, ...]
    others: float | None
    stolen: float | None
    load: float
    gpu: tuple[GpuState, ...] = ()

    @property
    def clock_range(self) -> float:
        """How much slower the slowest spin was than the fastest, as a share."""
        return max(self.spins) / min(self.spins) - 1 if self.spins else 0.0

    @property
    def busy(self) -> float:
        """The share of CPU time that was others', if it was worth mentioning."""
        return self.others if self.others is not None and self.others > BUSY else 0.0

    @property
    def notes(self) -> list[str]:
        """A line for everything that may have disturbed the figures; none on a quiet machine."""
        made = []
        if self.busy:
            made.append(f"the machine was busy: {100 * self.busy:.0f} % of CPU time was others'")
        if self.stolen is not None and self.stolen > STOLEN:
            made.append(f"{100 * self.stolen:.0f} % of CPU time was given to other machines")
        if self.clock_range > CLOCK_MOVED:
            made.append(f"the CPU's speed moved by {100 * self.clock_range:.0f} % between rounds")
        reasons = sorted({reason for state in self.gpu for reason in state.throttled})
        if reasons:
            held = sum(bool(state.throttled) for state in self.gpu)
            made.append(
                f"the GPU was held back in {held} of {len(self.gpu)} looks: {', '.join(reasons)}"
            )
        clocks = [state.megahertz for state in self.gpu]
        if clocks and max(clocks) > (1 + CLOCK_MOVED) * min(clocks):
            made.append(f"the GPU's clock moved between {min(clocks)} and {max(clocks)} MHz")
        return made


class Watch:
    """Looks at the machine when called, and knows in the end what it was like."""

    def __init__(
        self,
        device: Device = CPU,
        spin: Callable[[], float] | None = None,
        cpu_time: Callable[[], CpuTime] | None = None,
    ) -> None:
        self.device, self.spin, self.cpu_time = device, spin or spin_seconds, cpu_time or read_times
        self.spins: list[float] = []
        self.gpu: list[GpuState] = []
        self.start = self.cpu_time()

    def __call__(self) -> None:
        if self.device.kind == "cuda":  # first, before its clock comes down
            states = environment.gpu_states()
            self.gpu += states[self.device.index : self.device.index + 1]
        self.spins.append(self.spin())

    def conditions(self) -> Conditions:
        """From when this was made until now."""
        end = self.cpu_time()
        total = end.total - self.start.total
        own, busy = end.own - self.start.own, end.busy - self.start.busy
        stolen = end.stolen - self.start.stolen
        return Conditions(
            tuple(self.spins),
            others=min(1.0, max(0.0, (busy - own) / total)) if total > 0 else None,
            stolen=stolen / total if total > 0 else None,
            load=os.getloadavg()[0],
            gpu=tuple(self.gpu),
        )


def spin_seconds() -> float:
    best = float("inf")
    for _ in range(SPIN_TRIES):
        start = time.perf_counter()
        sum(range(SPIN))
        best = min(best, time.perf_counter() - start)
    return best


def read_times() -> CpuTime:
    own = time.process_time()
    if not STATISTICS.is_file():
        return CpuTime(0.0, 0.0, 0.0, own)
    usable = os.sched_getaffinity(0)
    return parse_times(STATISTICS.read_text(), os.sysconf("SC_CLK_TCK"), usable, own)


def parse_times(text: str, ticks_a_second: int, cores: Set[int], own: float) -> CpuTime:
    """Of some cores' lines of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal."""
    names = {f"cpu{core}" for core in cores}
    lines = [line.split() for line in text.splitlines()]
    ticks = [[int(field) for field in line[1:9]] for line in lines if line and line[0] in names]
    fields = [sum(column) / ticks_a_second for column in zip(*ticks, strict=True)]
    if not fields:
        return CpuTime(0.0, 0.0, 0.0, own)
    idle, stolen = fields[3] + fields[4], fields[7]
    return CpuTime(sum(fields), sum(fields) - idle - stolen, stolen, own)
