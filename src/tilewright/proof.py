"""Proof before a run: a plan's rungs on the layers at hand, with the options that the plan has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.errors import TilewrightError
from tilewright.ladder.rung import Options, Rung, Stages
from tilewright.model.network import Network
from tilewright.plan import Plan
from tilewright.precision import Precision
from tilewright.runtime.device import Device
from tilewright.verify import Verdict, verify_at_hand


def prove_first(rungs: Sequence[Rung], network: Network, plan: Plan, images: int) -> Verdict:
    """What was found right of a plan's rungs. If anything was wrong, an error: nothing is run."""
    verdicts = []
    for rung in rungs:
        planned = as_planned(rung, plan, network)
        verdict = verify_at_hand(planned, plan.device, network, min(plan.batch, images))
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
