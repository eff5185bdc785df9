"""Plans for trials: a rung chooses by a network's layers alone, and most trials have the same."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from tilewright.plan import Plan, uniform
from tilewright.rungs.rung import Options, Rung
from tilewright.runtime.device import Device
from tilewright.truth.trials import Trial


@dataclass(frozen=True)
class Plans:
    """Of one rung on one device, each made once."""

    rung: Rung
    device: Device
    made: dict[Hashable, Plan] = field(default_factory=dict)

    def of(self, trial: Trial, way: Options) -> Plan:
        """Its network by one of the rung's ways, which leave the rest to its choice."""
        network = trial.network
        if (plan := self.made.get(network.stages)) is None:
            plan = self.made[network.stages] = uniform(network, self.rung, self.device, 1)
        computing = {stage.name for stage in network.stages if stage.layer.computes}
        steps = tuple(
            replace(step, options={**step.options, **way})
            if computing.intersection(step.layers) else step
            for step in plan.steps
        )  # fmt: skip
        return replace(plan, network=network.name, batch=trial.capacity, steps=steps)
