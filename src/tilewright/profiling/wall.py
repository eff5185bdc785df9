"""Where the wall time went: every moment of it belongs to exactly one part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from tilewright.trace import Event

KERNELS, COPIES, PROFILER, LAUNCH, IDLE, HOST = (
    *("kernels", "copies", "profiler", "launch overhead", "idle", "host"),
)
# A moment belongs to the first of these that goes on; to the host, if none does.
PRIORITY = (KERNELS, COPIES, PROFILER, LAUNCH, IDLE)
PARTS = (KERNELS, COPIES, LAUNCH, HOST, IDLE, PROFILER)
WORDS = {
    KERNELS: "a kernel runs",
    COPIES: "no kernel runs, data moves between host and device",
    LAUNCH: "the device waits, the host is in a call that gives it work",
    HOST: "the device waits, the host is in no call: Python, NumPy",
    IDLE: "the device does nothing, and the host waits for it",
    PROFILER: "the profiler reads its records; a run alone has none",
}
# Calls in which the host waits for the device.
WAITING = ("Synchronize", "clFinish", "clWaitForEvents")


@dataclass(frozen=True)
class Wall:
    """The wall time of a run and its parts, in seconds; they add up to it."""

    seconds: float
    parts: dict[str, float]


class WallClock:
    """A sink of events in the order they began. Keeps one number for each part, and no events."""

    def __init__(self, start: float) -> None:
        self.start = self.cursor = start
        self.end = float("inf")
        self.until = dict.fromkeys(PRIORITY, start)
        self.parts = dict.fromkeys(PARTS, 0.0)

    def __call__(self, event: Event) -> None:
        part = part_of(event)
        if part is not None:
            self._go(event.start)
            self.until[part] = max(self.until[part], event.end)

    def stop(self, end: float) -> None:
        """The run is over. Events of it may still come; what happened after it does not count."""
        self.end = end

    def finish(self) -> Wall:
        """Every event has come."""
        self._go(self.end)
        return Wall(self.end - self.start, dict(self.parts))

    def _go(self, to: float) -> None:
        """Share out the time up to a moment; nothing begins before it."""
        to = min(to, self.end)
        while self.cursor < to:
            part, stop = HOST, to
            for one, until in self.until.items():  # in the order of PRIORITY
                if until > self.cursor:
                    part, stop = one, min(to, until)
                    break
            self.parts[part] += stop - self.cursor
            self.cursor = stop


def part_of(event: Event) -> str | None:
    """The part that an event belongs to, if it decides at all what a moment is."""
    if event.kind == "kernel":
        return KERNELS
    if event.kind in ("copy", "memset") or (event.kind == "unified" and event.bytes):
        return COPIES
    if event.kind == "profiler":
        return PROFILER
    if event.kind == "api":
        return IDLE if waits(event.name) else LAUNCH
    return None


@cache
def waits(call: str) -> bool:
    return any(word in call for word in WAITING)
