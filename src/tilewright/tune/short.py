"""A short trial when a network is built: what its planner likes best, timed in turns on the device.

A planner's estimates are some per cent off, and they are made for many images; only the device says
which of the few best is the fastest for a batch. So they are compiled side by side and timed in
turns, for a second or two, and the fastest is kept on disk: the next build that asks for a trial of
the same network, precision and size of batch, on the same GPU with the same driver and by the same
code, takes it from there. `tune` looks further, and proves what it finds.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from tilewright import plan_file
from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.planned import source
from tilewright.model.network import Network
from tilewright.rungs.rung import Options, Rung
from tilewright.runtime.device import Device
from tilewright.store import key_of, open_store
from tilewright.tune.device import Alone, OnDevice, launchable
from tilewright.tune.search import CLEARLY_SLOWER, Candidate
from tilewright.tune.spans import Span

MOST = 12  # that are timed
ROUNDS = 9
# What is not faster by this much than the planner's own choice is not taken for it.
BETTER = 0.99

# Median seconds of each candidate's kernels for one batch; infinite where it cannot be launched.
Race = Callable[[Network, Rung, Device, int, Sequence[Candidate]], Sequence[float]]


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a trial came to: the fastest options, as a candidate has them, and the times."""

    options: str
    seconds: float
    own_seconds: float | None  # of the planner's choice, if that can be launched


def by_trial(
    network: Network, rung: Rung, device: Device, batch: int, race: Race | None = None
) -> Options:
    """The fastest options of a rung that takes a network whole, for batches of about this size."""
    store, key = open_store("trials"), key_of(*_question(network, rung, device, batch))
    kept = store.read(key)
    if kept is None:
        found = _raced(network, rung, device, batch, race or race_on_device)
        kept = msgspec.json.encode(found)
        store.keep(key, kept)
    options = msgspec.json.decode(kept, type=Kept).options
    return Candidate(rung.name, rung.precision.name, options).plain


def _raced(network: Network, rung: Rung, device: Device, batch: int, race: Race) -> Kept:
    (stages,) = rung.cut(network)
    offered = itertools.islice(rung.candidates(device, stages, rung.precision), MOST)
    candidates = [Candidate.of(rung.name, rung.precision.name, each) for each in offered]
    seconds = race(network, rung, device, batch, candidates)
    if min(seconds) == math.inf:
        raise TilewrightError(f"trial: none of {len(seconds)} ways to compute it can be launched")
    best = min(range(len(seconds)), key=lambda index: seconds[index])
    if seconds[best] > BETTER * seconds[0]:
        best = 0
    own = seconds[0] if seconds[0] < math.inf else None
    return Kept(candidates[best].options, seconds[best], own)


def race_on_device(
    network: Network, rung: Rung, device: Device, batch: int, candidates: Sequence[Candidate]
) -> Sequence[float]:
    """All of them in turns, in an order shuffled anew; what is far behind takes part once."""
    # How many images there are counts, not what is in them: a part's are made where it is timed.
    images = np.broadcast_to(np.uint8(0), (batch, *network.input.shape))
    here = OnDevice(network, images, device, batch, {rung.name: rung})
    span = Span(network.stages, tuple(candidates[:1]), tuple(candidates))
    here.ahead(span, candidates)
    seconds: dict[int, list[float]] = {}
    running: dict[int, Alone] = {}
    for index, candidate in enumerate(candidates):
        try:
            with launchable(candidate):
                alone = here.alone(span, candidate)
                seconds[index] = [alone.seconds()]
        except TilewrightError:
            continue  # of several ways, one that this GPU does not take is no loss
        best = min(each[0] for each in seconds.values())
        if index == 0 or seconds[index][0] <= CLEARLY_SLOWER * best:
            running[index] = alone
    shuffler = random.Random(1)
    for _ in range(ROUNDS):
        for index in shuffler.sample(list(running), len(running)):
            seconds[index].append(running[index].seconds())
    return [
        statistics.median(seconds[index]) if index in seconds else math.inf
        for index in range(len(candidates))
    ]


def _question(network: Network, rung: Rung, device: Device, batch: int) -> list[str | bytes]:
    """All that the answer depends on; batches up to the same power of two are alike."""
    about = plan_file.identity(network, device)
    up_to = 1 << (batch - 1).bit_length()
    words = (*about.items(), rung.name, rung.precision.name, up_to, MOST)
    return [repr(words), source(".py", ".cuh")]
