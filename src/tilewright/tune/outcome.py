"""What came of a tuning: what was tried, the plans that were timed, and which of them is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.measure.samples import Ratio, Sample, ratio
from tilewright.plan import Plan
from tilewright.tune.search import Candidate, Ending, Tried
from tilewright.tune.spans import Span


@dataclass(frozen=True)
class Chosen:
    """What a plan has for a part, and what was timed of it."""

    span: Span
    tried: Tried


@dataclass(frozen=True)
class Entry:
    """A plan that took part in the end. `rung`: it is this one's own choice for all layers."""

    name: str
    plan: Plan
    chosen: tuple[Chosen, ...]
    rung: str | None = None


@dataclass(frozen=True)
class Dropped:
    """A candidate that was fast and wrong, or what a rung chose itself and could not be timed."""

    span: str
    candidate: Candidate
    problem: str


@dataclass(frozen=True)
class Tuned:
    """What came of it. `endings` are by the span's name; the plans were timed in turns."""

    spans: tuple[Span, ...]
    endings: Mapping[str, Ending]
    dropped: tuple[Dropped, ...]
    entries: tuple[Entry, ...]
    samples: Mapping[str, Sample]

    @property
    def single(self) -> Entry:
        """The fastest rung as it is."""
        return min((x for x in self.entries if x.rung is not None), key=self._median)

    @property
    def found(self) -> Entry | None:
        """The fastest plan that was found, if it is any other."""
        return min((x for x in self.entries if x.rung is None), key=self._median, default=None)

    @property
    def gain(self) -> Ratio | None:
        """How many times as fast the plan that was found is."""
        if self.found is None:
            return None
        return ratio(self.samples[self.single.name], self.samples[self.found.name])

    @property
    def best(self) -> Entry:
        """What was found, if it is faster beyond doubt; else the fastest rung."""
        gain = self.gain
        better = gain is not None and gain.value > 1 and gain.differs
        return self.found if better and self.found is not None else self.single

    def _median(self, entry: Entry) -> float:
        return self.samples[entry.name].median
