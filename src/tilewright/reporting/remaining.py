"""How long the rest of a report will take, by what the like of it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean


@dataclass
class Remaining:
    """What is done is told of with its kind: a profile takes longer than a run."""

    clock: Callable[[], float] = time.monotonic
    took: dict[str, list[float]] = field(default_factory=dict)
    since: float = 0.0

    def begin(self) -> None:
        self.since = self.clock()

    def done(self, kind: str) -> None:
        """What was begun is done, and the next begins."""
        self.took.setdefault(kind, []).append(self.clock() - self.since)
        self.begin()

    def words(self, ahead: Sequence[str]) -> str:
        """Of what kinds are ahead: `, 12 to go, about 3 min`; nothing where nothing is."""
        known = [seconds for each in self.took.values() for seconds in each]
        if not ahead or not known:
            return ""
        seconds = sum(fmean(self.took.get(kind, known)) for kind in ahead)
        about = f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
        return f", {len(ahead)} to go, about {about}"
