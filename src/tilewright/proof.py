"""Proof before a run: a plan's rungs on the layers at hand, with the options that the plan has."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.judge import WorkerStopped, isolated
from tilewright.ladder.rung import Options, Rung
from tilewright.model.network import Network, Stages
from tilewright.plan import Plan
from tilewright.precision import Precision
from tilewright.runtime.device import Device
from tilewright.verify import Verdict, verify_at_hand


def prove_first(
    rungs: Sequence[Rung],
    network: Network,
    plan: Plan,
    images: int,
    progress: Callable[[str], None] = lambda doing: None,
) -> Verdict:
    """What was found right of a plan's rungs. If anything was wrong, an error: nothing is run."""
    verdicts = []
    for rung in rungs:
        tried = in_worker(as_planned(rung, plan, network))
        count = itertools.count(1)

        def tell(name: str = rung.label, count: Iterator[int] = count) -> None:
            progress(f"proving {name}, trial {next(count)}")

        try:
            verdict = verify_at_hand(tried, plan.device, network, min(plan.batch, images), tell)
        except WorkerStopped as error:
            raise TilewrightError(f"rung {rung.label!r}: {error}") from error
        if verdict.fault is not None:
            raise TilewrightError(
                f"rung {rung.label!r} computes something wrong, and was not run: {verdict.fault}"
            )
        verdicts.append(verdict)
    return Verdict(
        verdicts[0].seed,
        sum(each.trials for each in verdicts),
        sum(each.outputs for each in verdicts),
        max(each.worst for each in verdicts),
        None,
    )


def in_worker(rung: Rung) -> Rung:
    """A rung from a file with its kernels in a worker: one that crashes or hangs is found there.

    Who runs a file has trusted it: a system without protection is no reason to refuse.
    """
    return rung if rung.origin is None else isolated(rung, trust=True)


def as_planned(rung: Rung, plan: Plan, network: Network) -> Rung:
    """A rung that chooses for layers of a network what a plan has chosen."""
    stages = {stage.name: stage for stage in network.stages}
    chosen = {
        tuple((stages[name].input_shape, stages[name].layer) for name in step.layers): step.options
        for step in plan.steps
        if step.rung == rung.name
    }

    def choose(device: Device, given: Stages, precision: Precision) -> Options:
        kinds = tuple((stage.input_shape, stage.layer) for stage in given)
        return chosen[kinds] if kinds in chosen else rung.plan(device, given, precision)

    return replace(rung, plan=choose)
