"""Kernels that the proofs of several rungs need, compiled once before they begin.

GPU rungs differ by their convolutions; pooling, activations and the like are the same kernels in
all of them. Proofs side by side know nothing of each other, and each would compile its own: of the
3,005 kernels of 16 rungs' proofs for `cifar10` 123 were in 13 of them each, two fifths of the
compiler's time (2026-11-16). What is compiled is kept on disk, where the proofs find it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from concurrent.futures import wait
from functools import partial

from tilewright.model.network import Network
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.runtime.gather import CompilesAhead, Text, gathered
from tilewright.truth.ahead import kernels_of, prepare_trial
from tilewright.truth.guards import rehearse
from tilewright.truth.plans import Plans
from tilewright.truth.verify import everything


def compile_shared(
    rungs: Sequence[Rung], device: Device, network: Network, batch: int, seed: int
) -> None:
    """What the first two rungs with kernels of the dialect have in common for trials of a seed."""
    alike = [rung for rung in rungs if rung.convolutions is not None][:2]
    if len(alike) < 2:
        return
    runtime = alike[0].open_runtime(device, alike[0].memories[0])
    if not isinstance(runtime, CompilesAhead):
        return
    first, second = (_texts(rung, runtime, device, network, batch, seed) for rung in alike)
    begun = runtime.compile_ahead(text for text in first if text in second)
    rehearse(runtime)
    wait(begun)


def _texts(
    rung: Rung, runtime: CompilesAhead, device: Device, network: Network, batch: int, seed: int
) -> dict[Text, None]:
    """The kernels of all of a rung's trials, in order."""
    plans, seen = Plans(rung, device), set[Hashable]()
    found: dict[Text, None] = {}
    for trial in everything(rung, network, batch, seed):
        if (kernels := kernels_of(trial)) not in seen:
            seen.add(kernels)
            found |= gathered(runtime, partial(prepare_trial, plans, trial))
    return found
