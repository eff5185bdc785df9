"""Kernels of the trials to come, compiled while others are tried.

A proof meets some eighty networks of one to twenty layers, one after the other, and a GPU's
compiler takes most of its time if each has to wait for its own kernels. The trials are known in
advance: they are drawn some way ahead, and their kernels are given to all cores.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from functools import partial

import numpy as np

from tilewright.execute import prepare
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.runtime.gather import CompilesAhead, Gathering, compile_together
from tilewright.truth.plans import Plans
from tilewright.truth.trials import Trial

# Trials that are drawn before their turn, and the bytes that their weights and images may take:
# enough that thirty networks are compiled at once.
MOST_TRIALS, MOST_BYTES = 400, 2**28


def compiled_ahead(
    rung: Rung, device: Device, trials: Iterable[Trial], plans: Plans | None = None
) -> Iterator[Trial]:
    """The same trials, in the same order; what a rung needs for the next ones is being compiled."""
    plans = plans or Plans(rung, device)
    runtime = rung.open_runtime(device, rung.memories[0])
    if not isinstance(runtime, CompilesAhead):
        yield from trials
        return
    drawn: deque[Trial] = deque()
    begun: set[Hashable] = set()
    held = 0
    for trial in trials:
        drawn.append(trial)
        held += _bytes(trial)
        if (kernels := kernels_of(trial)) not in begun:
            begun.add(kernels)
            compile_together(runtime, partial(prepare_trial, plans, trial))
        while len(drawn) > MOST_TRIALS or held > MOST_BYTES:
            held -= _bytes(drawn[0])
            yield drawn.popleft()
    yield from drawn


def prepare_trial(plans: Plans, trial: Trial, runtime: Gathering) -> None:
    """As for the trial itself, in each of the rung's ways."""
    rung, network, pixels = plans.rung, trial.network, trial.images.dtype == np.uint8
    for way in rung.tried_ways:
        plan = plans.of(trial, way)
        for step, stages in zip(plan.steps, rung.cut(network), strict=True):
            prepare(rung, runtime, stages, network.parameters, step.options, pixels, trial.capacity)


def kernels_of(trial: Trial) -> Hashable:
    """What a trial's kernels depend on: two trials that have it alike have the same."""
    return trial.network.stages, trial.images.dtype == np.uint8


def _bytes(trial: Trial) -> int:
    return trial.images.nbytes + sum(each.nbytes for each in trial.network.parameters.values())
