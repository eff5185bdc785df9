"""A plan: a network with every choice made. Plain data, so that it can be printed and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.errors import TilewrightError
from tilewright.model.network import Network, Stage, Stages
from tilewright.rungs import support
from tilewright.rungs.rung import Options, Rung, no_options
from tilewright.runtime.device import Device


@dataclass(frozen=True)
class Step:
    """Consecutive layers computed in one go, the rung that does it, and what it is to do it with.

    `options` are the rung's own words for its tiles, schedule and the like: plain numbers and
    names, in lists and under names. `takes` names the layers outside the step whose outputs it
    reads, and `buffer` is the number of the one that its last layer's output is in: nobody needs
    the others' outside. A buffer is used again when its last reader is done.
    """

    layers: tuple[str, ...]
    rung: str
    precision: str
    options: Options
    takes: tuple[str, ...] = ()
    buffer: int = 0


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
    steps = placed(network, [step(part, rung, device, options or {}) for part in parts])
    files = {} if rung.origin is None else {rung.name: rung.origin}
    return Plan(network.name, device, memory or rung.memories[0], batch, steps, files)


def step(stages: Stages, rung: Rung, device: Device, options: Options) -> Step:
    """Stages by a rung, with the options that are given and, for the rest, its own choice."""
    # Flattening alone computes nothing: there is nothing to choose.
    moves = any(stage.layer.computes for stage in stages)
    chosen = {**rung.plan(device, stages, rung.precision), **options} if moves else {}
    return Step(names(stages), rung.name, rung.precision.name, chosen)


def placed(network: Network, steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same steps with what each takes, and the buffers that it is found in."""
    stages = {stage.name: stage for stage in network.stages}
    takes = [taken(network, [stages[name] for name in each.layers]) for each in steps]
    ends = [each.layers[-1] for each in steps]
    # A step that computes nothing reads the same memory with another shape.
    same = [not any(stages[name].layer.computes for name in each.layers) for each in steps]
    held: dict[str, int] = {}
    made = []
    for index, each in enumerate(steps):
        later = {name for some in takes[index + 1 :] for name in some}
        if same[index] and takes[index]:
            buffer = held[takes[index][0]]
        else:
            # What it reads is not written to meanwhile.
            in_use = set(held.values())
            buffer = next(number for number in itertools.count() if number not in in_use)
        held[ends[index]] = buffer
        held = {name: number for name, number in held.items() if name in later}
        made.append(replace(each, takes=takes[index], buffer=buffer))
    return tuple(made)


def taken(network: Network, stages: Sequence[Stage]) -> tuple[str, ...]:
    """The layers outside of consecutive ones whose outputs these take: each once, but as often as a
    single layer takes it."""
    own = {stage.index for stage in stages}
    sources = [source for stage in stages for source in stage.sources if source not in own]
    each = sources if len(stages) == 1 else dict.fromkeys(sources)
    return tuple(network.stages[source].name for source in each)


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
    if hidden := [name for each in placed(network, plan.steps) for name in each.takes
                  if name not in {other.layers[-1] for other in plan.steps}]:  # fmt: skip
        raise TilewrightError(f"{_words(hidden)}: taken outside of the step that makes it")
    for number, (each, right) in enumerate(
        zip(plan.steps, placed(network, plan.steps), strict=True), 1
    ):
        if (each.takes, each.buffer) != (right.takes, right.buffer):
            raise TilewrightError(
                f"step {number} ({', '.join(each.layers):.60}) takes "
                f"{_words(each.takes) or 'nothing'} into buffer {each.buffer}; it must take "
                f"{_words(right.takes) or 'nothing'} into buffer {right.buffer}"
            )
    if len({rungs[each.rung].open_runtime for each in plan.steps}) > 1:
        used = _words(dict.fromkeys(each.rung for each in plan.steps))
        raise TilewrightError(f"rungs {used} have runtimes of their own: a plan runs on one")


def _words(layers: Iterable[str]) -> str:
    return f"{', '.join(layers):.80}"
