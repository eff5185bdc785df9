"""How long the rest of a report will take, by what was expected and what it took so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

# Seconds that a process takes to start and get ready, about; the same where its libraries were
# loaded while another was at work; and what PyTorch's take more.
START, STARTED_AHEAD, PYTORCH = 3.0, 1.0, 3.0
COUNTING = 6.0  # seconds that ncu takes for a batch
LOOPS = 1.2e9  # operations a second of nested loops on one core, about


class Expected(NamedTuple):
    """Seconds, or parts of a whole; what is on one device goes by what was done there."""

    seconds: float
    device: str = ""


@dataclass
class Remaining:
    """What is done is told of with what it was expected to take; what is ahead on the same device
    will be off by as much.
    """

    clock: Callable[[], float] = time.monotonic
    expected: dict[str, float] = field(default_factory=dict)
    spent: dict[str, float] = field(default_factory=dict)
    since: float = 0.0

    def begin(self) -> None:
        self.since = self.clock()

    def done(self, what: Expected) -> None:
        """What was begun is done, and the next begins."""
        for sums, more in ((self.expected, what.seconds), (self.spent, self.clock() - self.since)):
            sums[what.device] = sums.get(what.device, 0.0) + more
        self.begin()

    def words(self, ahead: Iterable[Expected]) -> str:
        """Of what is expected ahead: `, 12 to go, about 3 min`; nothing where nothing is."""
        left = [each.seconds * self._off(each.device) for each in ahead]
        return f", {len(left)} to go, about {duration(sum(left))}" if left else ""

    def _off(self, device: str) -> float:
        """How many times as long as expected things took."""
        return self.spent[device] / self.expected[device] if self.expected.get(device) else 1.0


def getting_ready(label: str, ahead: bool) -> float:
    """Seconds before a rung is at work; `ahead`: its process was started meanwhile."""
    return (STARTED_AHEAD if ahead else START) + (PYTORCH if label == "torch" else 0.0)


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
