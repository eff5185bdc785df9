"""A tuning from what was asked for to the plan in its file, where the device is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilewright import environment, plan_file
from tilewright.climb import Subject
from tilewright.errors import TilewrightError
from tilewright.precision import FLOAT32
from tilewright.results.climbed import conditions_record
from tilewright.results.tune import TuneRecord, record
from tilewright.rungs import OWN_SUFFIXES, choose, rungs
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.tune.device import OnDevice
from tilewright.tune.session import Session
from tilewright.tune.spans import spans, taking_part
from tilewright.tune.survey import Progress, Survey, Workshop
from tilewright.tune.trials import Trials


@dataclass(frozen=True)
class Asked:
    """What is to be tuned, on how many images, for how long; `named` are rungs and kernel files.

    The plan goes to `out`, and what was tried is kept beside it.
    """

    subject: Subject
    net: str
    named: tuple[str, ...]
    device: Device
    batch: int
    images: int
    precision: str | None
    budget: float
    out: Path

    @property
    def kept(self) -> Path:
        return Path(f"{self.out}.trials")


def tune(
    asked: Asked,
    tell: Progress,
    say: Callable[[str], None],
    helped: Callable[[OnDevice], Workshop] = lambda here: here,
) -> TuneRecord:
    """Search, prove, compare, and write the plan. `helped` may give the work on this device to
    others, too.
    """
    device, precision = asked.device, asked.precision or FLOAT32.name
    chosen = {rung.name: rung for rung in rungs_named(asked.named, device, asked.precision)}
    network = asked.subject.network
    shape = (asked.images, *network.input.shape)
    images = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    workshop = OnDevice(network, images, device, asked.batch, chosen)
    about = plan_file.identity(network, device)
    trials = Trials(
        asked.kept, {**about, "batch": workshop.images_at_once, "precision": precision},
        {x.name: plan_file.sha256_of(Path(x.origin)) for x in chosen.values() if x.origin},
    )  # fmt: skip
    known = sum(map(len, trials.known.values()))
    if known:
        say(f"going on from {known} trials in {asked.kept}")
    try:
        tell("what there is to choose", 0, 1)
        found = spans(network, list(chosen.values()), device)
        survey = Survey(device, found, helped(workshop), trials, asked.budget)
        tuned = Session(network, device, asked.batch, chosen, survey, tell).run()
    finally:
        trials.journal.close()
    plan_file.write(asked.out, tuned.best.plan, network)
    assert workshop.conditions is not None  # of the race that there was
    return record(
        tuned, network=network.name, device=str(device), device_name=workshop.description,
        images=asked.images, batch=asked.batch, precision=precision,
        weights=asked.subject.weights_note, budget=float(asked.budget), known=known,
        file=str(asked.out), net=asked.net, conditions=conditions_record(workshop.conditions),
        environment=environment.fingerprint(),
    )  # fmt: skip


def rungs_named(names: Sequence[str], device: Device, precision: str | None) -> list[Rung]:
    """Those that are named, or all, in the precision asked for; each name once."""
    given = list(dict.fromkeys(names))
    files = [name for name in given if name.endswith(OWN_SUFFIXES)]
    named = [name for name in given if name not in files]
    known = {rung.name: rung for rung in rungs(device)}
    for name in named:
        if name not in known:
            choose(device, name)  # says what is wrong with it
    ours = [known[name] for name in named] if named else list(known.values())
    found = taking_part([*ours, *(choose(device, name) for name in files)], device, precision)
    there = [rung.name for rung in found]
    for rung in found:
        if there.count(rung.name) > 1:
            raise TilewrightError(f"two rungs are named {rung.name!r}: names must differ")
    return found
