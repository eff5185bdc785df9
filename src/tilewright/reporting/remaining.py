"""How long the rest of a report will take, by what was expected and what it took so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass
class Remaining:
    """What is done is told of with the seconds, or the parts of a whole, that it was expected to
    take; what is ahead will be off by as much.
    """

    clock: Callable[[], float] = time.monotonic
    expected: float = 0.0
    spent: float = 0.0
    since: float = 0.0

    def begin(self) -> None:
        self.since = self.clock()

    def done(self, expected: float) -> None:
        """What was begun is done, and the next begins."""
        self.expected += expected
        self.spent += self.clock() - self.since
        self.begin()

    def words(self, ahead: Sequence[float]) -> str:
        """Of what is expected ahead: `, 12 to go, about 3 min`; nothing where nothing is."""
        if not ahead:
            return ""
        seconds = sum(ahead) * (self.spent / self.expected if self.expected else 1.0)
        return f", {len(ahead)} to go, about {duration(seconds)}"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
