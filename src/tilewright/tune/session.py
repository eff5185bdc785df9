"""A whole tuning: search every part, put the fastest together, prove it, time it against rungs.

Nothing here touches a device: a `Workshop` does, and tests have one that is made up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tilewright.errors import TilewrightError
from tilewright.model.network import Network
from tilewright.plan import Plan, Step, placed
from tilewright.precision import FLOAT32
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.tune.outcome import Chosen, Dropped, Entry, Tuned
from tilewright.tune.search import Candidate
from tilewright.tune.spans import Span, shared
from tilewright.tune.survey import Parts, Progress, Survey, seconds_of

FORMS = 3  # of whole networks, such as numbers of kernels, whose fastest takes part in the end
SINGLES = 2  # rungs that take part in the end, as they are: the fastest by their parts


@dataclass
class Session:
    """One tuning of a network on a device."""

    network: Network
    device: Device
    batch: int
    rungs: Mapping[str, Rung]
    survey: Survey
    progress: Progress = lambda doing, done, of: None
    proven: set[tuple[str, Candidate]] = field(default_factory=set)
    sound: list[tuple[Step, ...]] = field(default_factory=list)  # of plans that are right

    def run(self) -> Tuned:
        self.survey.search(self.progress)
        entries = self._entries()
        plans = {entry.name: entry.plan for entry in entries}
        turns = 0

        def turn(name: str) -> None:
            nonlocal turns
            turns += 1
            self.progress(f"timing {name} over all images", turns, max(turns, 10 * len(plans)))

        samples = self.survey.workshop.race(plans, turn)
        dropped = tuple(self._dropped())
        return Tuned(
            tuple(self.survey.spans), self.survey.endings, dropped, tuple(entries), samples
        )

    def _dropped(self) -> Iterator[Dropped]:
        for span in self.survey.spans:
            for tried in self.survey.endings[span.name].tried if span.computes else ():
                if tried.problem is not None and tried.candidate in span.own:
                    yield Dropped(span.name, tried.candidate, tried.problem)
        for (name, candidate), problem in self.survey.wrong.items():
            yield Dropped(name, candidate, problem)

    def _entries(self) -> list[Entry]:
        """The plans to be timed in the end, each proven: what was found, and rungs as they are."""
        entries: list[Entry] = []
        singles: list[tuple[float, str]] = []
        for name in self.rungs:
            try:
                singles.append((seconds_of(self.survey.cover(self.survey.parts(name))), name))
            except TilewrightError:
                continue  # it does not compute all layers
        for _, name in sorted(singles):
            entry = self._proven(partial(self.survey.parts, name), name)
            if entry is not None:
                entries.append(entry)
            if len(entries) == SINGLES:
                break
        if not entries:
            problems = "; ".join(f"{s}: {c}: {why}" for (s, c), why in self.survey.wrong.items())
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
        yield self.survey.parts
        yield partial(self.survey.parts, fused=False)
        several = [
            x
            for span in self.survey.spans
            if span.fused
            for x in self.survey.endings[span.name].tried
        ]
        forms = dict.fromkeys(each.candidate.form for each in several if each.seconds)
        for form in itertools.islice(forms, FORMS):
            yield partial(self.survey.parts, fused=True, form=form)

    def _proven(self, parts: Callable[[], Parts], rung: str | None) -> Entry | None:
        """The fastest way through some parts that is right; None if there is none."""
        while True:
            try:
                chosen = [Chosen(*part.choice) for part in self.survey.cover(parts())]
            except TilewrightError:
                return None
            if self._is_right(chosen):
                made = self._entry(chosen, rung)
                fault = self._fault(made)
                if fault is None:
                    return made
                at = next(x for x in chosen if fault[0] in x.span.layers)
                self.survey.wrong[at.span.name, at.tried.candidate] = fault[1]

    def _fault(self, entry: Entry) -> tuple[str, str] | None:
        if entry.plan.steps in self.sound:
            return None
        self.progress(f"proving {entry.name}", 0, 1)
        fault = self.survey.workshop.prove_plan(entry.plan)
        if fault is None:
            self.sound.append(entry.plan.steps)
        return fault

    def _is_right(self, chosen: Sequence[Chosen]) -> bool:
        for index, each in enumerate(chosen):
            key = each.span.name, each.tried.candidate
            if not each.span.computes or key in self.proven:
                continue
            self.progress(f"proving {each.span.name}: {key[1]!s:.40}", index, len(chosen))
            problem = self.survey.workshop.prove(each.span, each.tried.candidate)
            if problem is not None:
                self.survey.wrong[key] = problem
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
        found = placed(self.network, steps)
        plan = Plan(self.network.name, self.device, memory, self.batch, found, files)
        name = " + ".join(each.label for each in used.values())
        name = f"{name}, own choice" if rung else f"{name}, searched"
        return Entry(name, plan, tuple(chosen), rung)

    def _alike(self, span: Span) -> bool:
        """Whether it does not matter which rung computes it."""
        return shared(span.stages, self.device) or not span.computes
