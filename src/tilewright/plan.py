"""A plan: a network with every choice made. Plain data, so that it can be printed and compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tilewright.errors import TilewrightError
from tilewright.model.network import Network, Stages
from tilewright.rungs import support
from tilewright.rungs.rung import Options, Rung, no_options
from tilewright.runtime.device import Device


@dataclass(frozen=True)
class Step:
    """Consecutive layers computed in one go, the rung that does it, and what it is to do it with.

    `options` are the rung's own words for its tiles, schedule and the like: plain numbers and
    names, in lists and under names.
    """

    layers: tuple[str, ...]
    rung: str
    precision: str
    options: Options


@dataclass(frozen=True)
class Plan:
    """How a network is computed: where, how its data travels, and in what steps.

    `files` are where rungs come from that are not our own, by the rung's name.
    """

    network: str
    device: Device
    memory: str
    batch: int
    steps: tuple[Step, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def precision(self) -> str:
        """The steps' arithmetic in words."""
        return " and ".join(dict.fromkeys(step.precision for step in self.steps))


def uniform(
    network: Network,
    rung: Rung,
    device: Device,
    batch: int,
    memory: str | None = None,
    options: Options | None = None,
) -> Plan:
    """Every layer by the same rung, cut into steps as it likes; its own memory plan if none.

    `options` are not left to the rung to choose.
    """
    if memory is not None and memory not in rung.memories:
        own = "its own" if rung.memories == ("host",) else " or ".join(rung.memories)
        raise TilewrightError(
            f"rung {rung.name!r} cannot run with --memory {memory}: it works in {own} memory"
        )
    if batch < 1:
        raise TilewrightError(f"--batch {batch}: a batch has at least 1 image")
    parts = rung.cut(network)
    for part in parts:
        support.check(rung, part, device)
    steps = tuple(step(part, rung, device, options or {}) for part in parts)
    files = {} if rung.origin is None else {rung.name: rung.origin}
    return Plan(network.name, device, memory or rung.memories[0], batch, steps, files)


def step(stages: Stages, rung: Rung, device: Device, options: Options) -> Step:
    """Stages by a rung, with the options that are given and, for the rest, its own choice."""
    # Flattening alone computes nothing: there is nothing to choose.
    moves = any(stage.layer.computes for stage in stages)
    chosen = {**rung.plan(device, stages, rung.precision), **options} if moves else {}
    return Step(names(stages), rung.name, rung.precision.name, chosen)


def names(stages: Stages) -> tuple[str, ...]:
    return tuple(stage.name for stage in stages)


def check(plan: Plan, network: Network, rungs: Mapping[str, Rung]) -> None:
    """Refuse a plan that is not one of this network, or that its rungs cannot carry out."""
    for number, each in enumerate(plan.steps, 1):
        rung = rungs[each.rung].at(each.precision)
        where = f"step {number} ({', '.join(each.layers):.60})"
        if each.layers not in map(names, rung.cut(network)):
            raise TilewrightError(f"{where}: rung {rung.name!r} takes no such layers in one step")
        if plan.device.kind not in rung.devices:
            raise TilewrightError(f"{where}: rung {rung.name!r} does not run on {plan.device}")
        if plan.memory not in rung.memories:
            raise TilewrightError(f"{where}: rung {rung.name!r} knows no memory {plan.memory!r}")
        if each.options and rung.plan is no_options:
            raise TilewrightError(f"{where}: rung {rung.name!r} has no options")
    layers = tuple(layer for each in plan.steps for layer in each.layers)
    if layers != names(network.stages):
        raise TilewrightError(
            f"the plan is for the layers {_words(layers)}; network {network.name!r} has "
            f"{_words(names(network.stages))}"
        )
    if len({rungs[each.rung].open_runtime for each in plan.steps}) > 1:
        used = _words(dict.fromkeys(each.rung for each in plan.steps))
        raise TilewrightError(f"rungs {used} have runtimes of their own: a plan runs on one")


def _words(layers: Iterable[str]) -> str:
    return f"{', '.join(layers):.80}"
