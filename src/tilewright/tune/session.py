"""A whole tuning: search every part, put the fastest together, prove it, time it against rungs.

Nothing here touches a device: a `Workshop` does, and tests have one that is made up.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from tilewright.errors import TilewrightError
from tilewright.ladder.rung import Rung
from tilewright.measure import Ratio, Sample, ratio
from tilewright.model.network import Network
from tilewright.plan import Plan, Step
from tilewright.precision import FLOAT32
from tilewright.runtime.device import Device
from tilewright.tune.cover import Part, cover
from tilewright.tune.search import Candidate, Ending, Form, Timer, Tried, search
from tilewright.tune.spans import Span, shared
from tilewright.tune.trials import Trials

# A part is searched if a network with it takes no more than this many times the best one known.
HOPEFUL = 1.6
FORMS = 3  # of whole networks, such as numbers of kernels, whose fastest takes part in the end
SINGLES = 2  # rungs that take part in the end, as they are: the fastest by their parts
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


@dataclass
class Session:
    """One tuning of a network on a device; `budget` are the seconds of the search."""

    network: Network
    device: Device
    batch: int
    rungs: Mapping[str, Rung]
    spans: Sequence[Span]
    workshop: Workshop
    trials: Trials
    budget: float
    progress: Progress = lambda doing, done, of: None
    clock: Callable[[], float] = time.monotonic
    endings: dict[str, Ending] = field(default_factory=dict)
    wrong: dict[tuple[str, Candidate], str] = field(default_factory=dict)
    proven: set[tuple[str, Candidate]] = field(default_factory=set)
    sound: list[tuple[Step, ...]] = field(default_factory=list)  # of plans that are right

    def run(self) -> Tuned:
        self._search()
        entries = self._entries()
        plans = {entry.name: entry.plan for entry in entries}
        turns = 0

        def turn(name: str) -> None:
            nonlocal turns
            turns += 1
            self.progress(f"timing {name} over all images", turns, max(turns, 10 * len(plans)))

        samples = self.workshop.race(plans, turn)
        dropped = tuple(self._dropped())
        return Tuned(tuple(self.spans), self.endings, dropped, tuple(entries), samples)

    def _dropped(self) -> Iterator[Dropped]:
        for span in self.spans:
            for tried in self.endings[span.name].tried if span.computes else ():
                if tried.problem is not None and tried.candidate in span.own:
                    yield Dropped(span.name, tried.candidate, tried.problem)
        for (name, candidate), problem in self.wrong.items():
            yield Dropped(name, candidate, problem)

    def _search(self) -> None:
        """Each rung's own choice for every part, then the parts that could matter."""
        until = self.clock() + self.budget
        for span in self.spans:
            if span.computes:
                self.endings[span.name] = self._look(span, span.own, until, until)
        hopeful = self._hopeful()
        for index, span in enumerate(hopeful):
            # What one part leaves over is the next ones'.
            share = (until - self.clock()) / (len(hopeful) - index)
            ending = self._look(span, span.candidates, self.clock() + share, until)
            self.endings[span.name] = ending
        for span in self.spans:
            if span.computes and span not in hopeful and len(span.candidates) > len(span.own):
                ending = self.endings[span.name]
                reason = "not searched: it is far from the fastest"
                self.endings[span.name] = replace(ending, reason=reason)

    def _look(
        self, span: Span, candidates: Sequence[Candidate], until: float, end: float
    ) -> Ending:
        known = self.trials.known.get(span.name, {})

        def keep(tried: Tried) -> None:
            self.trials.keep(span.name, tried)

        def trying(candidate: Candidate, best: Tried | None) -> None:
            so_far = f"; best {best.candidate.rung} {1e6 * best.median:.3g} µs" if best else ""
            left = max(0.0, end - self.clock())
            self.progress(
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
        parts = self._parts()
        best = _seconds(self._cover(parts))
        found = []
        for part in parts:
            span, tried = part.choice
            beside = [x for x in parts if x is part or x.end <= part.first or x.first >= part.end]
            try:
                hopeful = _seconds(self._cover(beside)) <= HOPEFUL * best
            except TilewrightError:
                continue  # nothing computes the other layers one by one
            if hopeful and len(span.candidates) > len(span.own):
                found.append((tried.median, span))
        return [span for _, span in sorted(found, key=lambda each: each[0])]

    def _parts(
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

    def _cover(self, parts: Parts) -> Parts:
        return cover(len(self.network.stages), parts)

    def _entries(self) -> list[Entry]:
        """The plans to be timed in the end, each proven: what was found, and rungs as they are."""
        entries: list[Entry] = []
        singles: list[tuple[float, str]] = []
        for name in self.rungs:
            try:
                singles.append((_seconds(self._cover(self._parts(name))), name))
            except TilewrightError:
                continue  # it does not compute all layers
        for _, name in sorted(singles):
            entry = self._proven(partial(self._parts, name), name)
            if entry is not None:
                entries.append(entry)
            if len(entries) == SINGLES:
                break
        if not entries:
            problems = "; ".join(f"{s}: {c}: {why}" for (s, c), why in self.wrong.items())
            raise TilewrightError(f"no rung computes all of {self.network.name!r}: {problems}")
        for some in self._kinds():
            entry = self._proven(some, None)
            if entry and all(entry.plan.steps != other.plan.steps for other in entries):
                same = sum(other.name.startswith(entry.name) for other in entries)
                name = f"{entry.name} {same + 1}" if same else entry.name
                entries.append(replace(entry, name=name))
        return entries

    def _kinds(self) -> Iterator[Callable[[], Parts]]:
        """Parts to choose from: all, those of one layer, those of several in each of their forms.

        Times of kernels say nothing of what it costs to launch more of them.
        """
        yield self._parts
        yield partial(self._parts, fused=False)
        several = [x for span in self.spans if span.fused for x in self.endings[span.name].tried]
        forms = dict.fromkeys(each.candidate.form for each in several if each.seconds)
        for form in itertools.islice(forms, FORMS):
            yield partial(self._parts, fused=True, form=form)

    def _proven(self, parts: Callable[[], Parts], rung: str | None) -> Entry | None:
        """The fastest way through some parts that is right; None if there is none."""
        while True:
            try:
                chosen = [Chosen(*part.choice) for part in self._cover(parts())]
            except TilewrightError:
                return None
            if self._is_right(chosen):
                made = self._entry(chosen, rung)
                fault = self._fault(made)
                if fault is None:
                    return made
                at = next(x for x in chosen if fault[0] in x.span.layers or x.span.fused)
                self.wrong[at.span.name, at.tried.candidate] = fault[1]

    def _fault(self, entry: Entry) -> tuple[str, str] | None:
        if entry.plan.steps in self.sound:
            return None
        self.progress(f"proving {entry.name}", 0, 1)
        fault = self.workshop.prove_plan(entry.plan)
        if fault is None:
            self.sound.append(entry.plan.steps)
        return fault

    def _is_right(self, chosen: Sequence[Chosen]) -> bool:
        for index, each in enumerate(chosen):
            key = each.span.name, each.tried.candidate
            if not each.span.computes or key in self.proven:
                continue
            self.progress(f"proving {each.span.name}: {key[1]!s:.40}", index, len(chosen))
            problem = self.workshop.prove(each.span, each.tried.candidate)
            if problem is not None:
                self.wrong[key] = problem
                return False
            self.proven.add(key)
        return True

    def _entry(self, chosen: Sequence[Chosen], rung: str | None) -> Entry:
        """A plan. Layers that all rungs compute alike are by the rung of the layer before them, or
        else of the first that has a choice."""
        steps: list[Step] = []
        choices = [x for x in chosen if not self._alike(x.span)]
        near = self.rungs[(choices or chosen)[0].tried.candidate.rung]
        for each in chosen:
            candidate = each.tried.candidate
            user = self.rungs[rung or candidate.rung]
            if rung is None and self._alike(each.span) and near.precision.name == FLOAT32.name:
                user = near
            near = user
            steps.append(Step(each.span.layers, user.name, user.precision.name, candidate.plain))
        used = {name: self.rungs[name] for name in dict.fromkeys(step.rung for step in steps)}
        files = {name: each.origin for name, each in used.items() if each.origin is not None}
        memory = next(iter(used.values())).memories[0]
        plan = Plan(self.network.name, self.device, memory, self.batch, tuple(steps), files)
        name = " + ".join(each.label for each in used.values())
        name = f"{name}, own choice" if rung else f"{name}, searched"
        return Entry(name, plan, tuple(chosen), rung)

    def _alike(self, span: Span) -> bool:
        """Whether it does not matter which rung computes it."""
        return shared(span.stages, self.device) or not span.computes


def _seconds(parts: Parts) -> float:
    return sum(part.seconds for part in parts)
