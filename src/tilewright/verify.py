"""Proof that a rung computes the right answer.

Every layer kind is tried alone on sizes that divide nothing evenly and on the sizes of the
network at hand; then short sequences of layers, which some rungs fuse; then the whole network,
step by step. Inputs are fresh and random each time. Outputs are compared with the float64
reference, element by element, against the computed rounding bound (`tilewright.reference`).

Several kinds of inputs leave a wrong kernel little room. *Whole numbers* make every partial sum
exact, so that the bound is zero: one tap too many, a wrong index or a rounded operand shows,
however long the sum. They come with large inputs or large weights, as single *impulses* of up to
24 bits, and *positive*, so that sums fill an accumulator. *Real numbers* show everything else;
*special values* are zeros, tiny, huge and equal numbers.

Three images, then one, then three again in another order go through the same buffers: a kernel that
remembers, or takes the tail for a full batch, gives itself away. Inputs and outputs lie between
margins of NaN, each with its own bits, and outputs start as NaN: what is not written, is read or
written outside, or comes out as NaN does not pass, nor does a kernel that changes its input. A rung
that computes large batches otherwise than such small ones is tried in each of its ways.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import reference
from tilewright.execute import Program
from tilewright.ladder.rung import Rung
from tilewright.model.layers import Shape, dimensions
from tilewright.model.network import Network, Stage
from tilewright.plan import uniform
from tilewright.runtime import Buffer, Runtime
from tilewright.runtime.dialect import DoesNotFit
from tilewright.trials import BATCH, NETWORK_AT_HAND, Inputs, trials

# A full batch, a tail that is not, and a full batch of other images in the same memory.
CALLS = ((0, 1, 2), (2,), (1, 2, 0))
# How often the whole network is run, to meet an error that comes only now and then.
ROUNDS = 5
MARGIN = 1024
INPUT_POISON, OUTPUT_POISON = 0x7FC0A5A5, 0x7FC05A5A  # NaN both, but not the same one


@dataclass(frozen=True)
class Fault:
    """The first output found wrong."""

    layer: str
    inputs: str
    problem: str

    def __str__(self) -> str:
        return f"{self.layer}, {self.inputs}: {self.problem}"


@dataclass(frozen=True)
class Verdict:
    """What verification found. `worst` is the largest error seen as a share of its bound."""

    seed: int
    trials: int
    outputs: int
    worst: float
    fault: Fault | None

    @property
    def passed(self) -> bool:
        return self.fault is None


def verify(
    rung: Rung,
    device: str,
    network: Network | None = None,
    seed: int | None = None,
    progress: Callable[[], None] = lambda: None,
) -> Verdict:
    """Try a rung on the odd cases and, if given, on every layer and the whole of a network.

    Without a seed the inputs are new each time; the verdict's seed repeats them. What is larger
    than the device allows the rung's kernels is not tried; DoesNotFit if that is the network.
    """
    if network is not None and network.parameters:
        Program(network, uniform(network, rung, device, BATCH), {rung.name: rung})
    seed = secrets.randbits(32) if seed is None else seed
    generator = np.random.default_rng(seed)
    tried = outputs = 0
    worst = 0.0
    for inputs, net, images in trials(network, rung.precision, generator):
        progress()
        tried += 1
        # Only the network itself, which comes last, is worth waiting for a rare error.
        rounds = ROUNDS if net.name == NETWORK_AT_HAND else 1
        for way in rung.ways or (rung.prepare,):
            one = replace(rung, prepare=way)
            try:
                compared, share, fault = _run(one, device, inputs, net, images, rounds)
            except DoesNotFit:
                tried -= 1
                break
            outputs += compared
            worst = max(worst, share)
            if fault is not None:
                return Verdict(seed, tried, outputs, worst, fault)
    return Verdict(seed, tried, outputs, worst, None)


def _run(
    rung: Rung, device: str, inputs: str, network: Network, images: Inputs, rounds: int
) -> tuple[int, float, Fault | None]:
    """Run a network call by call and check every step against the reference.

    A step is checked on what the step before it really gave, so that the first wrong layer is
    the one that is named.
    """
    plan = uniform(network, rung, device, BATCH)
    program = Program(network, plan, {rung.name: rung})
    runtime = program.runtime
    by_name = {stage.name: stage for stage in network.stages}
    given = _Guarded(runtime, images.shape, images.dtype, INPUT_POISON)
    # Values that are float32 already skip the input step, and a Flatten has no output of its own.
    pixels = images.dtype == np.uint8
    outputs = [
        _Guarded(runtime, (BATCH, *step.shape), np.dtype(np.float32), OUTPUT_POISON)
        if step.launch and (pixels or not step.only_input)
        else None
        for step in program.steps
    ]
    used = [output for output in outputs if output is not None]
    program.outputs = [output and output.inside(BATCH) for output in outputs]
    compared, worst = 0, 0.0
    right: dict[tuple[tuple[int, ...], int], bytes] = {}
    for call in CALLS * rounds:
        batch = np.ascontiguousarray(images[list(call)])
        given.fill(batch)
        for guarded in used:
            guarded.fill(None)
        before: Any = batch
        buffers = program.activations(given.inside(len(call)))
        for index, (step, buffer) in enumerate(zip(plan.steps, buffers, strict=True)):
            stages = [by_name[name] for name in step.layers]
            runtime.synchronise()
            actual = np.array(runtime.download(buffer))
            problem = None
            output = outputs[index]
            if output is not None:
                output.expect(actual)
            # What repeats, bit for bit, what was right on the same inputs is right.
            if right.get((call, index)) != actual.tobytes():
                truth = reference.chain(stages, network.parameters, before, rung.precision)[-1]
                share, problem = compare(actual, truth)
                compared += actual.size
                worst = max(worst, share)
                right[call, index] = actual.tobytes()
            for guarded in (given, *used):
                problem = problem or guarded.damage()
            if problem is not None:
                where = _describe(stages, network)
                return compared, worst, Fault(where, f"{inputs}, images {call}", problem)
            before = actual
    return compared, worst, None


def compare(actual: NDArray[np.float32], truth: reference.Truth) -> tuple[float, str | None]:
    """The largest error as a share of its bound, and what is wrong first, if anything is."""
    if actual.shape != truth.value.shape:
        return math.inf, f"output has shape {actual.shape}, not {truth.value.shape}"
    if not np.isfinite(truth.bound).all():
        return math.inf, "the rounding bound overflows: this network cannot be verified"
    with np.errstate(invalid="ignore"):
        error = np.abs(actual - truth.value)
        right = error <= truth.bound  # false for NaN
    if right.all():
        used = error[truth.bound > 0] / truth.bound[truth.bound > 0]
        return float(used.max(initial=0.0)), None
    wrong = np.argwhere(~right)
    place = tuple(int(i) for i in wrong[0])
    text = (
        f"output[{', '.join(map(str, place))}] is {actual[place]:.9g}, must be "
        f"{truth.value[place]:.9g} within {truth.bound[place]:.2g} "
        f"({len(wrong)} of {actual.size} outputs wrong)"
    )
    return math.inf, text


class _Guarded:
    """A buffer on a device between two margins of poison, and what it should hold."""

    def __init__(self, runtime: Runtime, shape: Shape, dtype: np.dtype[Any], poison: int) -> None:
        self.runtime, self.shape = runtime, shape
        bits = np.full(math.prod(shape) + 2 * MARGIN, poison, np.uint32)
        self.poison = bits.view(np.float32) if dtype == np.float32 else bits.astype(np.uint8)
        self.expected = self.poison.copy()
        self.buffer: Buffer = runtime.upload(self.poison.copy())

    def inside(self, images: int) -> Buffer:
        size = images * math.prod(self.shape[1:])
        return self.buffer[MARGIN : MARGIN + size].reshape(images, *self.shape[1:])

    def fill(self, content: Inputs | None) -> None:
        """Poison it all again, then put the content in; the memory stays the same."""
        self.expected[:] = self.poison
        if content is not None:
            self.expect(content)
        self.buffer[:] = self.runtime.upload(self.expected.copy())

    def expect(self, content: Inputs) -> None:
        self.expected[MARGIN : MARGIN + content.size] = content.ravel()

    def damage(self) -> str | None:
        """Whether anything was written that should not have been."""
        held = np.ascontiguousarray(self.runtime.download(self.buffer))
        changed = np.flatnonzero(held.view(np.uint8) != self.expected.view(np.uint8))
        if not changed.size:
            return None
        place = int(changed[0]) // held.itemsize - MARGIN
        inside = 0 <= place < math.prod(self.shape)
        what = "changed its input" if inside else "wrote outside its output"
        return f"the kernel {what}, {place} elements from the start"


def _describe(stages: list[Stage], network: Network) -> str:
    first, last = stages[0], stages[-1]
    shape = dimensions(first.input_shape)
    if first is last:
        return f"{first.name} ({first.layer.summary or first.kind} on {shape})"
    return f"{first.name} to {last.name} of {network.name!r} on {shape}"
