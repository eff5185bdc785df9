"""The search over all parts of a network: first choices, then the parts that could matter."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tilewright.errors import TilewrightError
from tilewright.measure.samples import Sample
from tilewright.plan import Plan
from tilewright.runtime.device import Device
from tilewright.tune.cover import Part, cover
from tilewright.tune.search import Candidate, Ending, Form, Timer, Tried, search
from tilewright.tune.spans import Span, shared
from tilewright.tune.trials import Trials

# A part is searched if a network with it takes no more than this many times the best one known.
HOPEFUL = 1.6
# Called with what is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
Parts = list[Part[tuple[Span, Tried]]]


class Workshop(Protocol):
    """Where candidates are timed and proven; `tune.device` has the real one."""

    def timer(self, span: Span) -> Timer: ...

    def ahead(self, span: Span, candidates: Sequence[Candidate]) -> None: ...

    def prove(self, span: Span, candidate: Candidate) -> str | None: ...

    def prove_plan(self, plan: Plan) -> tuple[str, str] | None: ...

    def race(
        self, plans: Mapping[str, Plan], progress: Callable[[str], None]
    ) -> dict[str, Sample]: ...


@dataclass
class Survey:
    """What was tried of each span; `budget` are the seconds of the search.

    `endings` are by the span's name; `wrong` has what was fast and did not pass its proof.
    """

    device: Device
    spans: Sequence[Span]
    workshop: Workshop
    trials: Trials
    budget: float
    clock: Callable[[], float] = time.monotonic
    endings: dict[str, Ending] = field(default_factory=dict)
    wrong: dict[tuple[str, Candidate], str] = field(default_factory=dict)

    def search(self, progress: Progress) -> None:
        """Each rung's own choice for every part, then the parts that could matter."""
        until = self.clock() + self.budget
        for span in self.spans:
            if span.computes:
                self.endings[span.name] = self._look(span, span.own, until, until, progress)
        hopeful = self._hopeful()
        for index, span in enumerate(hopeful):
            # What one part leaves over is the next ones'.
            share = (until - self.clock()) / (len(hopeful) - index)
            ending = self._look(span, span.candidates, self.clock() + share, until, progress)
            self.endings[span.name] = ending
        for span in self.spans:
            if span.computes and span not in hopeful and len(span.candidates) > len(span.own):
                ending = self.endings[span.name]
                reason = "not searched: it is far from the fastest"
                self.endings[span.name] = replace(ending, reason=reason)

    def _look(
        self,
        span: Span,
        candidates: Sequence[Candidate],
        until: float,
        end: float,
        progress: Progress,
    ) -> Ending:
        known = self.trials.known.get(span.name, {})

        def keep(tried: Tried) -> None:
            self.trials.keep(span.name, tried)

        def trying(candidate: Candidate, best: Tried | None) -> None:
            so_far = f"; best {best.candidate.rung} {1e6 * best.median:.3g} µs" if best else ""
            left = max(0.0, end - self.clock())
            progress(
                f"{span.name}: {candidate!s:.40}{so_far}; {left:.0f} s left",
                round(self.budget - left), round(self.budget),
            )  # fmt: skip

        return search(
            candidates, span.own, self.workshop.timer(span), known=dict(known), keep=keep,
            ahead=lambda some: self.workshop.ahead(span, some), trying=trying,
            time_left=lambda: until - self.clock(),
        )  # fmt: skip

    def _hopeful(self) -> list[Span]:
        """Spans with a choice that a fast network could have in it, those of least time first."""
        parts = self.parts()
        best = seconds_of(self.cover(parts))
        found = []
        for part in parts:
            span, tried = part.choice
            beside = [x for x in parts if x is part or x.end <= part.first or x.first >= part.end]
            try:
                hopeful = seconds_of(self.cover(beside)) <= HOPEFUL * best
            except TilewrightError:
                continue  # nothing computes the other layers one by one
            if hopeful and len(span.candidates) > len(span.own):
                found.append((tried.median, span))
        return [span for _, span in sorted(found, key=lambda each: each[0])]

    def parts(
        self, own: str | None = None, fused: bool | None = None, form: Form | None = None
    ) -> Parts:
        """Every span's fastest candidate that is not known to be wrong, or a rung's own choices.

        If `fused` is said, only spans of several layers, or only those of one; if a form of
        options is given, only candidates of that form.
        """
        parts: Parts = []
        for span in self.spans:
            if fused is not None and span.fused != fused:
                continue
            if not span.computes:
                parts.append(Part(span.first, span.end, 0.0, (span, Tried(span.own[0]))))
                continue
            for tried in self.endings[span.name].tried:
                wanted = own is None or shared(span.stages, self.device) or (
                    tried.candidate in span.own and tried.candidate.rung == own
                )  # fmt: skip
                right = tried.seconds and (span.name, tried.candidate) not in self.wrong
                if wanted and right and form in (None, tried.candidate.form):
                    parts.append(Part(span.first, span.end, tried.median, (span, tried)))
                    break
        return parts

    def cover(self, parts: Parts) -> Parts:
        """The fastest way through some parts from the first layer to the last."""
        return cover(max(span.end for span in self.spans), parts)


def seconds_of(parts: Parts) -> float:
    return sum(part.seconds for part in parts)
