"""Two records side by side: what changed, and whether it is more than noise.

Each thing that was timed in both has the ratio of its medians with an interval, from a bootstrap
over the raw samples of each (`measure.ratio_apart`). They were taken at different times: what moved
the machine as a whole in between is not in the interval, so all that is known to differ is said.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.measure.samples import Ratio, Sample, ratio_apart
from tilewright.results.record import Record


@dataclass(frozen=True)
class Change:
    """One thing that was timed, in seconds an image; None on the side where it was not."""

    name: str
    before: Sample | None
    after: Sample | None
    times: Ratio | None  # how many times as fast it is after
    untimed: str = ""  # why it was not timed on one side, if that is known

    @property
    def verdict(self) -> str:
        if self.before is None or self.after is None:
            only, other = ("B", "A") if self.before is None else ("A", "B")
            why = f"; {other}: {self.untimed}" if self.untimed else ""
            return f"only in {only}{why}"
        if self.times is None or not self.times.interval.known:
            return f"cannot be told: {_few(self.before, self.after)}"
        if not self.times.differs:
            return "no more than noise"
        return "faster" if self.times.value > 1 else "slower"


@dataclass(frozen=True)
class Changes:
    """`differences` says in words what else is not the same."""

    before: Record
    after: Record
    rows: tuple[Change, ...]
    differences: tuple[str, ...]


def compare(before: Record, after: Record) -> Changes:
    if type(before) is not type(after):
        kinds = " with a ".join(each.verb() for each in (before, after))
        raise TilewrightError(f"cannot compare a {kinds}: they time different things")
    disturbance = max(before.disturbance, after.disturbance)
    rows = []
    for name in {**before.timings, **after.timings}:
        first, second = before.timings.get(name), after.timings.get(name)
        times = None
        if first and second and first.median and second.median:
            times = ratio_apart(first, second).doubted(disturbance)
        untimed = before.untimed.get(name) or after.untimed.get(name, "")
        rows.append(Change(name, first, second, times, untimed))
    return Changes(before, after, tuple(rows), tuple(_differences(before, after)))


def _few(before: Sample, after: Sample) -> str:
    counts = [len(each.seconds) for each in (before, after)]
    return f"{counts[0]} and {counts[1]} samples" if counts != [1, 1] else "one sample each"


def _differences(before: Record, after: Record) -> list[str]:
    """Everything known that may be behind a change other than the code that was timed."""
    sides = [
        {
            "network": each.network,
            "device": f"{each.device} ({each.device_name})",
            "machine": each.environment.machine,
            **{name: str(value) for name, value in each.settings.items()},
            "Tilewright": each.environment.tilewright,
            "system": each.environment.system,
            "Python": each.environment.python,
            **{f"driver of {gpu.name}": gpu.driver for gpu in each.environment.gpus},
            **each.environment.libraries,
        }
        for each in (before, after)
    ]
    names = {**sides[0], **sides[1]}
    pairs = [(name, sides[0].get(name, "none"), sides[1].get(name, "none")) for name in names]
    return [f"{name}: A {first}, B {second}" for name, first, second in pairs if first != second]
