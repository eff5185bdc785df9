"""Proof that a rung computes the right answer.

Every layer kind is tried alone on sizes that divide nothing evenly and on the sizes of the
network at hand; then short sequences of layers, which some rungs fuse; then the whole network,
step by step. Inputs are fresh and random each time. Outputs are compared with the float64
reference, element by element, against the computed rounding bound (`tilewright.reference`).

Several kinds of inputs leave a wrong kernel little room. *Whole numbers* make every partial sum
exact, so that the bound is zero: one tap too many, a wrong index or a rounded operand shows,
however long the sum. They come with large inputs or large weights, as single *impulses* of up to
24 bits, and *positive*, so that sums fill an accumulator. *Sparse* and *covering* weights make sums
of few products of all bits, for all inputs, whose bound is a few ulp. *Real numbers* show
everything else; *special values* are zeros, tiny, huge and equal numbers. *NaN and infinity* must
arrive wherever they belong.

Where several layers are one step, only its end can be seen. Each of them is then looked at alone
in its place: all the others are given weights with which they pass values on
(`tilewright.isolation`), for values and for pixels.

Full batches, tails and batches of the size asked for go through the same buffers, and many calls,
each with other images: a kernel that remembers, or takes the tail for a full batch, gives itself
away. Inputs and outputs lie between margins of NaN, each with its own bits, and outputs start as
NaN: what is not written, is read or written outside, or comes out as NaN does not pass, nor does a
kernel that changes its input. A rung that computes large batches otherwise than small ones is tried
in each of its ways.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tilewright import reference
from tilewright.execute import Program
from tilewright.ladder.rung import Rung
from tilewright.model.layers import Shape, dimensions
from tilewright.model.network import Network, Stage
from tilewright.plan import uniform
from tilewright.runtime import Buffer, Runtime
from tilewright.runtime.device import Device
from tilewright.runtime.dialect import DoesNotFit
from tilewright.trials import Inputs, Trial, trials

# Images at a time, if none are asked for: more than any vector has lanes.
BATCH = 100
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
    device: Device,
    network: Network | None = None,
    seed: int | None = None,
    batch: int = BATCH,
    progress: Callable[[], None] = lambda: None,
) -> Verdict:
    """Try a rung on the odd cases and, if given, on every layer and the whole of a network.

    Without a seed the inputs are new each time; the verdict's seed repeats them. The network is
    tried in batches of the given size, among others. What is larger than the device allows the
    rung's kernels is not tried; DoesNotFit if that is the network.
    """
    if network is not None and network.parameters:
        Program(network, uniform(network, rung, device, batch), {rung.name: rung})
    seed = secrets.randbits(32) if seed is None else seed
    generator = np.random.default_rng(seed)
    tried = outputs = 0
    worst = 0.0

    def fuses(net: Network) -> bool:
        parts = rung.cut(net)
        return any(sum(stage.layer.computes for stage in part) > 1 for part in parts)

    def computes(net: Network) -> bool:
        return not any(map(rung.supports, net.stages))

    for trial in trials(network, rung.precision, fuses, batch, generator, computes):
        if trial.arrival and rung.vendor:
            continue  # ONNX Runtime's max pooling swallows NaN (1.31.1); ours must not
        progress()
        tried += 1
        truths = _Truths(trial, rung)
        for way in rung.ways or (rung.prepare,):
            try:
                attempt = _Attempt(replace(rung, prepare=way), device, trial, truths)
            except DoesNotFit:
                tried -= 1
                break
            fault = attempt.fault()
            outputs += attempt.compared
            worst = max(worst, attempt.worst)
            if fault is not None:
                return Verdict(seed, tried, outputs, worst, fault)
    return Verdict(seed, tried, outputs, worst, None)


class _Truths:
    """What each step of a network should make of an image, computed once for the same image."""

    def __init__(self, trial: Trial, rung: Rung) -> None:
        self.steps = [list(part) for part in rung.cut(trial.network)]
        self.parameters, self.precision = trial.network.parameters, rung.precision
        self.known: list[dict[bytes, reference.Truth]] = [{} for _ in self.steps]

    def of(self, index: int, images: Inputs) -> list[reference.Truth]:
        """A step's outputs for some images, one by one."""
        known = self.known[index]
        keys = [image.tobytes() for image in images]
        finite = [bool(np.isfinite(image).all()) for image in images]
        fresh = {key: place for place, key in enumerate(keys) if key not in known}
        for alike in (True, False):  # NaN would leave the bound of no other image as it is
            places = {key: place for key, place in fresh.items() if finite[place] == alike}
            if places:
                known.update(
                    zip(places, self._chain(index, images[list(places.values())]), strict=True)
                )
        return [known[key] for key in keys]

    def _chain(self, index: int, images: Inputs) -> Iterator[reference.Truth]:
        with np.errstate(invalid="ignore", over="ignore"):
            chain = reference.chain(self.steps[index], self.parameters, images, self.precision)
        for value, bound in zip(chain[-1].value, chain[-1].bound, strict=True):
            yield reference.Truth(value, bound)


class _Attempt:
    """A trial of a rung: every step of every call checked against the reference.

    A step is checked on what the step before it really gave, so that the first wrong layer is
    the one that is named.
    """

    def __init__(self, rung: Rung, device: Device, trial: Trial, truths: _Truths) -> None:
        self.trial, self.truths = trial, truths
        plan = uniform(trial.network, rung, device, trial.capacity)
        self.program = Program(trial.network, plan, {rung.name: rung})
        runtime, images = self.program.runtime, trial.images
        room = (trial.capacity, *images.shape[1:])
        self.given = _Guarded(runtime, room, images.dtype, INPUT_POISON)
        # Values that are float32 already skip the input step, and a Flatten has no output of its
        # own.
        pixels = images.dtype == np.uint8
        self.outputs = [
            _Guarded(runtime, (trial.capacity, *step.shape), np.float32, OUTPUT_POISON)
            if step.launch and (pixels or not step.only_input)
            else None
            for step in self.program.steps
        ]
        self.used = [output for output in self.outputs if output is not None]
        self.program.outputs = [
            None if output is None else output.inside(trial.capacity) for output in self.outputs
        ]
        self.program.capacity = trial.capacity
        self.compared, self.worst = 0, 0.0

    def fault(self) -> Fault | None:
        """The first thing wrong in any of the calls."""
        for number, call in enumerate(self.trial.calls):
            fault = self._call(number, call)
            if fault is not None:
                return fault
        return None

    def _call(self, number: int, call: tuple[int, ...]) -> Fault | None:
        runtime = self.program.runtime
        batch = np.ascontiguousarray(self.trial.images[list(call)])
        self.given.fill(batch)
        for guarded in self.used:
            guarded.fill(None)
        before: Inputs = batch
        buffers = self.program.activations(self.given.inside(len(call)))
        for index, (stages, buffer) in enumerate(zip(self.truths.steps, buffers, strict=True)):
            runtime.synchronise()
            actual = np.array(runtime.download(buffer))
            output = self.outputs[index]
            if output is not None:
                output.expect(actual)
            problem = self._problem(index, before, actual)
            # Next to the step first; the rest when all is done, as there may be much of it.
            last = index == len(self.outputs) - 1
            near = [each for each in self.outputs[max(0, index - 1) : index + 1] if each]
            for guarded in (self.given, *(self.used if last else near)):
                problem = problem or guarded.damage()
            if problem is not None:
                which = f"{self.trial.inputs}, call {number + 1} with {_listed(call)}"
                return Fault(_describe(stages, self.trial.network), which, problem)
            before = actual
        return None

    def _problem(self, index: int, before: Inputs, actual: NDArray[np.float32]) -> str | None:
        """What is wrong with a step's output, given its input."""
        self.compared += actual.size
        truths = self.truths.of(index, before)
        for image, (given, truth) in enumerate(zip(before, truths, strict=True)):
            spoiled = self.trial.arrival and not np.isfinite(given).all()
            share, problem = (swallowed if spoiled else compare)(actual[image], truth)
            self.worst = max(self.worst, share)
            if problem is not None:
                return f"image {image} of {len(before)}: {problem}"
        return None


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
    place, count = _first(~right)
    text = (
        f"output[{', '.join(map(str, place))}] is {actual[place]:.9g}, must be "
        f"{truth.value[place]:.9g} within {truth.bound[place]:.2g} "
        f"({count} of {actual.size} outputs wrong)"
    )
    return math.inf, text


def swallowed(actual: NDArray[np.float32], truth: reference.Truth) -> tuple[float, str | None]:
    """Whether a number came out where NaN or infinity went in."""
    wrong = np.isfinite(actual) & ~np.isfinite(truth.value)
    if not wrong.any():
        return 0.0, None
    place, count = _first(wrong)
    text = (
        f"output[{', '.join(map(str, place))}] is {actual[place]:.9g}, must be "
        f"{truth.value[place]} ({count} of {actual.size} outputs swallow NaN or infinity)"
    )
    return math.inf, text


def _first(wrong: NDArray[np.bool_]) -> tuple[tuple[int, ...], int]:
    places = np.argwhere(wrong)
    return tuple(int(i) for i in places[0]), len(places)


def _listed(call: tuple[int, ...]) -> str:
    return f"images {call}" if len(call) <= 5 else f"{len(call)} images"


class _Guarded:
    """A buffer on a device between two margins of poison, and what it should hold."""

    def __init__(self, runtime: Runtime, shape: Shape, dtype: DTypeLike, poison: int) -> None:
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
        bits = f"u{held.itemsize}"  # NaN is not equal to itself
        changed = held.view(bits) != self.expected.view(bits)
        if not changed.any():
            return None
        place = int(changed.argmax()) - MARGIN
        inside = 0 <= place < math.prod(self.shape)
        what = "changed its input" if inside else "wrote outside its output"
        return f"the kernel {what}, {place} elements from the start"


def _describe(stages: list[Stage], network: Network) -> str:
    first, last = stages[0], stages[-1]
    shape = dimensions(first.input_shape)
    if first is last:
        return f"{first.name} ({first.layer.summary or first.kind} on {shape})"
    return f"{first.name} to {last.name} of {network.name!r} on {shape}"
