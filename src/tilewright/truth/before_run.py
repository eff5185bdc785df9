"""Proof before a run: a plan's rungs on the layers at hand, with the options that the plan has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.judge import WorkerStopped, isolated
from tilewright.model.layers import Layer, Shape
from tilewright.model.network import Network, Parameters, Stages
from tilewright.plan import Plan, names
from tilewright.precision import Precision
from tilewright.rungs import together
from tilewright.rungs.rung import Launch, Options, Rung
from tilewright.runtime.device import Device
from tilewright.truth.verify import Verdict, verify_at_hand


def prove_first(
    rungs: Sequence[Rung],
    network: Network,
    plan: Plan,
    images: int,
    progress: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """What was found right of a plan's rungs. If anything was wrong, an error: nothing is run."""
    verdict, rung = _proven(rungs, network, plan, images, progress)
    if verdict.fault is not None:
        raise TilewrightError(
            f"rung {rung.label!r} computes something wrong, and was not run: {verdict.fault}"
        )
    return verdict


def prove_plan(
    rungs: Sequence[Rung],
    network: Network,
    plan: Plan,
    images: int,
    progress: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """The same as a verdict, whatever it is."""
    return _proven(rungs, network, plan, images, progress)[0]


def _proven(
    rungs: Sequence[Rung],
    network: Network,
    plan: Plan,
    images: int,
    progress: Callable[[str], None],
) -> tuple[Verdict, Rung]:
    """All of them, up to the first that is wrong; and the last that was tried."""
    verdicts: list[Verdict] = []
    for rung in rungs:
        tried = in_worker(as_planned(rung, plan, network))
        count = itertools.count(1)

        def tell(name: str = rung.label, count: Iterator[int] = count) -> None:
            progress(f"proving {name}, trial {next(count)}")

        try:
            verdict = verify_at_hand(tried, plan.device, network, min(plan.batch, images), tell)
        except WorkerStopped as error:
            raise TilewrightError(f"rung {rung.label!r}: {error}") from error
        verdicts.append(verdict)
        if verdict.fault is not None:
            break
    together = Verdict(
        verdicts[-1].seed,
        sum(each.trials for each in verdicts),
        sum(each.outputs for each in verdicts),
        max(each.worst for each in verdicts),
        verdicts[-1].fault,
    )
    return together, rung


def in_worker(rung: Rung) -> Rung:
    """A rung from a file with its kernels in a worker: one that crashes or hangs is found there.

    Who runs a file has trusted it: a system without protection is no reason to refuse.
    """
    return rung if rung.origin is None else isolated(rung, trust=True)


def as_planned(rung: Rung, plan: Plan, network: Network) -> Rung:
    """A rung that chooses for layers of a network what a plan has chosen."""
    stages = {stage.name: stage for stage in network.stages}
    steps = [step for step in plan.steps if step.rung == rung.name]
    return choosing(
        rung, [(tuple(stages[name] for name in step.layers), step.options) for step in steps]
    )


def as_one(plan: Plan, rungs: Mapping[str, Rung]) -> Rung:
    """All that a plan has chosen, as if it were one rung: to be proven as a whole."""
    steps = {step.layers: step for step in plan.steps}

    def cut(network: Network) -> list[Stages]:
        stages = iter(network.stages)
        return [tuple(itertools.islice(stages, len(layers))) for layers in steps]

    def choose(device: Device, stages: Stages, precision: Precision) -> Options:
        return steps[names(stages)].options

    def prepare(
        runtime: object,
        stages: Stages,
        parameters: Parameters,
        options: Options,
        precision: Precision,
    ) -> Launch:
        step = steps[names(stages)]
        rung = rungs[step.rung].at(step.precision)
        return rung.prepare(runtime, stages, parameters, options, rung.precision)

    whole = together(plan, rungs)
    return replace(
        whole, cut=cut, plan=choose, prepare=prepare, ways=({},), fast_ways=(), precisions=()
    )


def choosing(rung: Rung, given: Iterable[tuple[Stages, Options]]) -> Rung:
    """A rung that chooses options which are given for stages like these, its own for others."""
    chosen = {_alike(stages): options for stages, options in given}

    def choose(device: Device, stages: Stages, precision: Precision) -> Options:
        kinds = _alike(stages)
        return chosen[kinds] if kinds in chosen else rung.plan(device, stages, precision)

    return replace(rung, plan=choose)


def _alike(stages: Stages) -> tuple[tuple[Shape, Layer], ...]:
    return tuple((stage.input_shape, stage.layer) for stage in stages)
