"""Proof that a rung computes the right answer.

Every layer kind is tried alone on sizes that divide nothing evenly and on the sizes of the
network at hand; then short sequences of layers, which some rungs fuse; then the whole network,
step by step. Inputs are fresh and random each time. Outputs are compared with the float64
reference, element by element, against the computed rounding bound (`tilewright.truth.reference`).

Several kinds of inputs leave a wrong kernel little room. *Whole numbers* make every partial sum
exact, so that the bound is zero: one tap too many, a wrong index or a rounded operand shows,
however long the sum. They come with large inputs or large weights, as single *impulses* of up to
24 bits, and *positive*, so that sums fill an accumulator. *Sparse* and *covering* weights make sums
of few products of all bits, for all inputs, whose bound is a few ulp. *Real numbers* show
everything else; *special values* are zeros, tiny, huge and equal numbers. *NaN and infinity* must
arrive wherever they belong.

Where several layers are one step, only its end can be seen. Each of them is then looked at alone
in its place: all the others are given weights with which they pass values on
(`tilewright.truth.isolation`), for values and for pixels.

Full batches, tails and batches of the size asked for go through the same buffers, and many calls,
each with other images: a kernel that remembers, or takes the tail for a full batch, gives itself
away. Inputs and outputs lie between margins of NaN, each with its own bits, and outputs start as
NaN: what is not written, is read or written outside, or comes out as NaN does not pass, nor does a
kernel that changes its input. A rung that computes large batches otherwise than small ones is tried
in each of its ways. Weights and what lies between a layer's kernels have margins, too; scratch and
shared memory are poisoned before every call.

What is found wrong comes with its evidence (`tilewright.truth.evidence`), of which
`tilewright.truth.diagnose` says what it looks like.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.execute import Program
from tilewright.model.network import Network, Stage
from tilewright.plan import uniform
from tilewright.rungs.rung import Rung
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.ahead import compiled_ahead, kernels_of
from tilewright.truth.attempt import Attempt
from tilewright.truth.evidence import Fault
from tilewright.truth.plans import Plans
from tilewright.truth.quick import first_look
from tilewright.truth.trials import Trial, at_hand, trials
from tilewright.truth.truths import Truths

# Images at a time, if none are asked for: more than any vector has lanes.
BATCH = 100


@dataclass(frozen=True)
class Verdict:
    """What verification found. `worst` is the largest error seen as a share of its bound.

    `unfit` is why the first trial that the rung cannot do was left out. `proven` is the day that it
    was found on, if that was before and is believed (`tilewright.truth.kept`).
    """

    seed: int
    trials: int
    outputs: int
    worst: float
    fault: Fault | None
    unfit: str = ""
    proven: str = ""

    @property
    def passed(self) -> bool:
        return self.fault is None


class Share(NamedTuple):
    """A number below `of`: of a proof that is made in so many shares."""

    number: int
    of: int


WHOLE = Share(0, 1)


def verify(
    rung: Rung,
    device: Device,
    network: Network | None = None,
    seed: int | None = None,
    batch: int = BATCH,
    progress: Callable[[], None] = lambda: None,
    share: Share = WHOLE,
) -> Verdict:
    """Try a rung on the odd cases and, if given, on every layer and the whole of a network.

    Without a seed the inputs are new each time; the verdict's seed repeats them. The network is
    tried in batches of the given size, among others. What is larger than the device allows the
    rung's kernels is not tried; DoesNotFit if that is the network. Of a `share` only those trials
    are made: `together` are the verdicts on all of them.
    """
    if network is not None and network.parameters:
        Program(network, uniform(network, rung, device, batch), {rung.name: rung})
    seed = fresh_seed() if seed is None else seed
    tried = shared_out(everything(rung, network, batch, seed), share)
    return prove(rung, device, tried, seed, progress=progress)


def shared_out(tried: Iterable[Trial], share: Share) -> Iterator[Trial]:
    """Those of a share: trials with the same kernels are in the same one."""
    numbers: dict[Hashable, int] = {}
    for trial in tried:
        if numbers.setdefault(kernels_of(trial), len(numbers)) % share.of == share.number:
            yield trial


def together(verdicts: Sequence[Verdict]) -> Verdict:
    """One on all that several are on."""
    return Verdict(
        verdicts[0].seed,
        sum(each.trials for each in verdicts),
        sum(each.outputs for each in verdicts),
        max(each.worst for each in verdicts),
        next((each.fault for each in verdicts if each.fault is not None), None),
        next((each.unfit for each in verdicts if each.unfit), ""),
    )


def everything(rung: Rung, network: Network | None, batch: int, seed: int) -> Iterator[Trial]:
    """All that a rung is tried on. Of one seed, layers and networks are the same for all rungs."""

    def fuses(net: Network) -> bool:
        parts = rung.cut(net)
        return any(sum(stage.layer.computes for stage in part) > 1 for part in parts)

    def computes(net: Network) -> bool:
        return not any(rung.supports(stage) or _borrowed(rung, stage) for stage in net.stages)

    generator = np.random.default_rng(seed)
    return trials(network, rung.precision, fuses, batch, generator, computes)


def _borrowed(rung: Rung, stage: Stage) -> bool:
    """Whether a convolution is computed by another rung's kernel, which is proven there."""
    own = rung.convolutions
    return own is not None and stage.kind == "conv" and not stage.layer.specials <= own.specials


def verify_at_hand(
    rung: Rung,
    device: Device,
    network: Network,
    batch: int,
    progress: Callable[[], None] = lambda: None,
) -> Verdict:
    """Try a rung on a network's convolutions and the whole of it: what a run wants to know first.

    DoesNotFit if the device has too little for it.
    """
    Program(network, uniform(network, rung, device, batch), {rung.name: rung})
    seed = fresh_seed()
    tried = at_hand(network, rung.precision, batch, np.random.default_rng(seed))
    return prove(rung, device, tried, seed, progress=progress)


def verify_briefly(
    rung: Rung,
    device: Device,
    network: Network,
    batch: int,
    progress: Callable[[], None] = lambda: None,
) -> Verdict:
    """Try a rung for a first look, in seconds; DoesNotFit if the device has too little for it."""
    Program(network, uniform(network, rung, device, batch), {rung.name: rung})
    seed = fresh_seed()
    tried = first_look(network, rung.precision, np.random.default_rng(seed))
    return prove(rung, device, tried, seed, progress=progress)


def fresh_seed() -> int:
    return secrets.randbits(32)


def prove(
    rung: Rung,
    device: Device,
    tried: Iterable[Trial],
    seed: int,
    repeatable: bool = False,
    progress: Callable[[], None] = lambda: None,
) -> Verdict:
    """Hold a rung to some trials, up to the first that it fails.

    `repeatable`: each call is made twice, and both must give the same to the last bit, as kernels
    do that add nothing atomically.
    """
    count = outputs = 0
    worst, unfit = 0.0, ""
    plans = Plans(rung, device)
    for trial in compiled_ahead(rung, device, tried, plans):
        if trial.arrival and rung.vendor:
            continue  # ONNX Runtime's max pooling swallows NaN (1.31.1); ours must not
        progress()
        count += 1
        truths = Truths(trial, rung)
        for way in rung.tried_ways:
            try:
                attempt = Attempt(rung, plans.of(trial, way), trial, truths, repeatable)
            except DoesNotFit as error:
                unfit = unfit or str(error)
                count -= 1
                break
            fault = attempt.fault()
            outputs += attempt.compared
            worst = max(worst, attempt.worst)
            if fault is not None:
                return Verdict(seed, count, outputs, worst, fault)
    return Verdict(seed, count, outputs, worst, None, unfit)
