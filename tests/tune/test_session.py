"""A tuning on a workshop that is made up: what is tried, chosen, proven, dropped and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.test_plan import NETWORK
from tilewright.errors import TilewrightError
from tilewright.measure.samples import Sample
from tilewright.plan import Plan, names
from tilewright.rungs import find
from tilewright.rungs.rung import Options, whole_network
from tilewright.runtime.device import OPENCL
from tilewright.tune.outcome import Tuned
from tilewright.tune.search import Candidate, Timer
from tilewright.tune.session import Session
from tilewright.tune.spans import Span
from tilewright.tune.survey import Survey
from tilewright.tune.trials import Trials

RUNGS = {
    "direct": find("direct"),
    "tuned": find("tuned"),
    "whole": replace(find("direct"), name="whole", cut=whole_network),
}
TILES: dict[str, list[Options]] = {
    "direct": [{"rows": rows} for rows in (16, 8, 4)],
    "tuned": [{"rows": rows, "staged": staged} for rows in (8, 4) for staged in (1, 2)],
}
# Microseconds; a tile that is not named takes twice as long as its rung's first.
USUAL = {
    "input": {"direct": 1}, "relu": {"direct": 2}, "fc": {"direct": 5},
    "conv1": {"direct": 40, "tuned": 60, "tuned rows=4 staged=2": 20},
    "conv2": {"direct": 30, "direct rows=4": 25, "tuned": 70},
    "input..fc": {"whole": 95, "whole cut=2": 90},
}  # fmt: skip


def span(stages: Sequence[int], tiles: Mapping[str, list[Options]]) -> Span:
    own = [Candidate.of(name, "fp32", options[0]) for name, options in tiles.items()]
    rest = [Candidate.of(name, "fp32", x) for name, options in tiles.items() for x in options[1:]]
    return Span(tuple(NETWORK.stages[i] for i in stages), tuple(own), (*own, *rest))


def spans(whole: bool = True) -> list[Span]:
    found = [span([i], TILES if i in (1, 3) else {"direct": [{}]}) for i in range(6)]
    cuts: list[Options] = [{"cut": 1}, {"cut": 2}]
    return [*found, span(range(6), {"whole": cuts})] if whole else found


@dataclass
class Workshop:
    """Times by a table; faults and the plans' times are given."""

    micro: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: USUAL)
    faults: Mapping[tuple[str, str], str] = field(default_factory=dict)
    plan_fault: Callable[[Plan], tuple[str, str] | None] = lambda plan: None
    network: Callable[[Plan], float] = lambda plan: 1.0
    stops_after: int = 10**6
    timed: list[tuple[str, str]] = field(default_factory=list)
    proven: list[tuple[str, str]] = field(default_factory=list)
    now: float = 0.0

    def timer(self, span: Span) -> Timer:
        def seconds(candidate: Candidate, repeats: int) -> list[float]:
            if repeats == 1:
                if len(self.timed) == self.stops_after:
                    raise KeyboardInterrupt
                self.timed.append((span.name, str(candidate)))
            self.now += 1.0
            known = self.micro[span.name]
            first = candidate in span.own
            default = known[candidate.rung] * (1 if first else 2)
            return [1e-6 * known.get(str(candidate), default)] * repeats

        return seconds

    def ahead(self, span: Span, candidates: Sequence[Candidate]) -> None:
        assert all(each in span.candidates for each in candidates)

    def prove(self, span: Span, candidate: Candidate) -> str | None:
        self.proven.append((span.name, str(candidate)))
        return self.faults.get((span.name, str(candidate)))

    def prove_plan(self, plan: Plan) -> tuple[str, str] | None:
        return self.plan_fault(plan)

    def race(self, plans: Mapping[str, Plan], progress: Callable[[str], None]) -> dict[str, Sample]:
        assert all(names(NETWORK.stages) == sum((x.layers for x in plan.steps), ())
                   for plan in plans.values())  # fmt: skip
        return {name: Sample((self.network(plan),) * 9) for name, plan in plans.items()}


def tune(
    workshop: Workshop, path: Path, found: list[Span] | None = None, budget: float = 1e6
) -> Tuned:
    trials = Trials(path / "trials", {})
    survey = Survey(OPENCL, found or spans(), workshop, trials, budget, clock=lambda: workshop.now)
    try:
        return Session(NETWORK, OPENCL, 4, RUNGS, survey).run()
    finally:
        trials.journal.close()


def used(plan: Plan) -> dict[str, tuple[str, Options]]:
    return {step.layers[0]: (step.rung, step.options) for step in plan.steps}


def by_rungs(plan: Plan) -> float:
    """Plans of several rungs are the fastest."""
    return 1.0 / len({step.rung for step in plan.steps})


def test_each_layer_is_by_the_rung_and_tile_that_is_fastest(tmp_path: Path) -> None:
    tuned = tune(Workshop(network=by_rungs), tmp_path)
    assert tuned.best.rung is None and tuned.best.name == "tuned + direct, searched"
    assert tuned.gain is not None and tuned.gain.value == 2.0 and tuned.gain.differs
    assert used(tuned.best.plan) == {
        "input": ("tuned", {}),  # by the first that has a choice
        "conv1": ("tuned", {"rows": 4, "staged": 2}),
        "relu": ("tuned", {}),  # all rungs compute it alike: by the one before
        "conv2": ("direct", {"rows": 4}),
        "flatten": ("direct", {}),
        "fc": ("direct", {}),
    }


def test_rungs_as_they_are_take_part_and_win_where_nothing_is_faster(tmp_path: Path) -> None:
    tuned = tune(Workshop(), tmp_path)
    assert {entry.name for entry in tuned.entries} == {
        "direct, own choice", "whole, own choice", "tuned + direct, searched", "whole, searched",
    }  # fmt: skip
    assert tuned.gain is not None and not tuned.gain.differs
    assert tuned.best is tuned.single and tuned.best.rung is not None
    assert {x.span.name: dict(x.tried.candidate.plain) for x in tuned.single.chosen}["conv2"] == {
        "rows": 16
    }


def test_what_could_not_make_the_network_faster_is_not_searched(tmp_path: Path) -> None:
    slow = {**USUAL, "fc": {"direct": 500}}  # no tile of a convolution makes up for that
    workshop = Workshop(slow, network=lambda plan: len(plan.steps))
    tuned = tune(workshop, tmp_path)
    assert "not searched" in tuned.endings["conv1"].reason
    assert {what for part, what in workshop.timed if part == "conv1"} == {
        "direct rows=16", "tuned rows=8 staged=1"
    }  # fmt: skip
    assert used(tuned.best.plan) == {"input": ("whole", {"cut": 1})}
    assert ("input..fc", "whole cut=2") in workshop.timed


def test_a_fast_candidate_that_is_wrong_is_dropped_and_named(tmp_path: Path) -> None:
    fault = "conv1, whole numbers: 3 is not 4"
    faults = {("conv1", "tuned rows=4 staged=2"): fault}
    tuned = tune(Workshop(network=by_rungs, faults=faults), tmp_path, spans(whole=False))
    (dropped,) = tuned.dropped
    assert (dropped.span, str(dropped.candidate), dropped.problem) == (
        "conv1", "tuned rows=4 staged=2", fault
    )  # fmt: skip
    assert all("tuned" not in used(entry.plan)["conv1"] for entry in tuned.entries[2:])


def test_nothing_is_in_a_plan_that_was_not_proven(tmp_path: Path) -> None:
    workshop = Workshop(network=by_rungs)
    tuned = tune(workshop, tmp_path)
    for entry in tuned.entries:
        for each in entry.chosen:
            if each.span.computes:
                assert (each.span.name, str(each.tried.candidate)) in workshop.proven


def test_a_plan_that_is_wrong_as_a_whole_loses_the_layer_that_is(tmp_path: Path) -> None:
    def fault(plan: Plan) -> tuple[str, str] | None:
        wrong = used(plan).get("conv2") == ("direct", {"rows": 4})
        return ("conv2", "conv2, random pixels: nan is not 1") if wrong else None

    tuned = tune(Workshop(network=by_rungs, plan_fault=fault), tmp_path)
    assert [str(each.candidate) for each in tuned.dropped] == ["direct rows=4"]
    assert used(tuned.best.plan)["conv2"] == ("direct", {"rows": 16})


def test_whole_networks_of_several_forms_take_part(tmp_path: Path) -> None:
    """One of two kernels may be the fastest by its kernels, and slower for its launches."""
    cuts: list[Options] = [{"kernels": [1]}, {"kernels": [1, 1]}, {"kernels": [2]}]
    times = {"whole": 95, "whole 0=1 1=1": 50, "whole 0=2": 60}
    found = [*spans(whole=False), span(range(6), {"whole": cuts})]

    def launches(plan: Plan) -> float:
        kernels = plan.steps[0].options.get("kernels", [1] * 9)
        return {(1,): 1.0, (1, 1): 1.1, (2,): 0.9}.get(tuple(kernels), 2.0)  # type: ignore[arg-type]

    tuned = tune(Workshop({**USUAL, "input..fc": times}, network=launches), tmp_path, found)
    assert used(tuned.best.plan) == {"input": ("whole", {"kernels": [2]})}
    assert tuned.best.name == "whole, searched 2"


def test_layers_that_nothing_computes_one_by_one_leave_the_whole_network(tmp_path: Path) -> None:
    found = [each for each in spans() if each.name != "conv2"]
    workshop = Workshop(network=lambda plan: plan.steps[0].options["cut"] == 1 or 0.5)
    tuned = tune(workshop, tmp_path, found)
    assert used(tuned.best.plan) == {"input": ("whole", {"cut": 2})}


def test_where_every_rung_is_wrong_nothing_is_written(tmp_path: Path) -> None:
    workshop = Workshop(plan_fault=lambda plan: ("fc", "fc, random pixels: 1 is not 2"))
    with pytest.raises(TilewrightError, match=r"no rung computes all of 'small'.*1 is not 2"):
        tune(workshop, tmp_path)


def test_a_search_that_was_stopped_goes_on(tmp_path: Path) -> None:
    whole = Workshop(network=by_rungs)
    expected = tune(whole, tmp_path)
    (tmp_path / "again").mkdir()
    stopped = Workshop(network=by_rungs, stops_after=7)
    with pytest.raises(KeyboardInterrupt):
        tune(stopped, tmp_path / "again")
    rest = Workshop(network=by_rungs)
    assert tune(rest, tmp_path / "again").best.plan == expected.best.plan
    assert len(rest.timed) == len(whole.timed) - 7
    assert not set(rest.timed) & set(stopped.timed)


def test_the_budget_ends_the_search_and_what_is_left_over_goes_to_the_next(tmp_path: Path) -> None:
    workshop = Workshop(network=by_rungs)
    tuned = tune(workshop, tmp_path, budget=1)
    assert len(workshop.timed) == 8  # every rung's own choice of every part, and no more
    assert {e.reason for e in tuned.endings.values()} == {"its time was over", "all were tried"}


def test_trials_of_a_kernel_file_that_has_changed_are_not_known_any_more(tmp_path: Path) -> None:
    trials = Trials(tmp_path / "trials", {}, {"tuned": "aa"})
    survey = Survey(OPENCL, spans(), Workshop(), trials, 1e6)
    Session(NETWORK, OPENCL, 4, RUNGS, survey).run()
    trials.journal.close()
    lines = [json.loads(line) for line in (tmp_path / "trials").read_text().splitlines()[1:]]
    others = {(x["part"], json.dumps(x["options"])) for x in lines if x["rung"] != "tuned"}
    again = Trials(tmp_path / "trials", {}, {"tuned": "bb"})
    known = {
        (part, json.dumps(dict(candidate.plain)))
        for part, some in again.known.items()
        for candidate in some
    }
    assert known == others and len(lines) > len(others)
