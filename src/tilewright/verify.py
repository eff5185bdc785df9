"""Proof that a rung computes the right answer.

Every layer kind is tried alone on sizes that divide nothing evenly and on the sizes of the
network at hand, then the whole network step by step, each time with fresh random inputs and on
more images than a batch holds, so that there is a tail. Outputs are compared with the float64
reference, element by element, against the computed rounding bound (`tilewright.reference`).

Three kinds of inputs leave a wrong kernel nowhere to hide. *Whole numbers* make every partial sum
exact, so that the bound is zero: one tap too many, a wrong index or a rounded operand shows,
however long the sum. They come twice, once with large inputs and once with large weights. *Real
numbers* of many magnitudes show sums kept in too little precision, overflow and the like.

Inputs and outputs lie between margins of NaN, and outputs start as NaN: what is not written, is
read or written outside, or comes out as NaN does not pass.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright import reference
from tilewright.execute import Program
from tilewright.ladder.rung import Rung
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    Shape,
    Softmax,
    Tanh,
    dimensions,
)
from tilewright.model.network import Network, Stage
from tilewright.plan import uniform
from tilewright.runtime import Buffer, Runtime

# Three images in batches of two: a full batch, and a tail that is not.
IMAGES, BATCH = 3, 2
MARGIN = 1024
LARGE = 4095  # needs 12 bits, one more than fp16 and TF32 hold

Inputs = NDArray[Any]
Generator = np.random.Generator


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
    layers: int
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

    Without a seed the inputs are new each time; the verdict's seed repeats them.
    """
    seed = secrets.randbits(32) if seed is None else seed
    generator = np.random.default_rng(seed)
    layers = outputs = 0
    worst = 0.0
    for case in _cases(network, generator):
        layers += 1
        for inputs, net, images in case:
            progress()
            compared, share, fault = _run(rung, device, inputs, net, images)
            outputs += compared
            worst = max(worst, share)
            if fault is not None:
                return Verdict(seed, layers, outputs, worst, fault)
    return Verdict(seed, layers, outputs, worst, None)


Trial = tuple[str, Network, Inputs]


def _cases(network: Network | None, generator: Generator) -> Iterator[Iterator[Trial]]:
    """One iterator of trials for each layer (or network) to try."""
    for shape, layer in _odd_layers(generator):
        yield _trials(shape, layer, generator)
    if network is None:
        return
    for stage in network.stages:
        if stage.kind not in ("input", "flatten"):
            yield _trials(stage.input_shape, stage.layer, generator)
    pixels = generator.integers(0, 256, (IMAGES, *network.input.shape), np.uint8)
    whole = network if network.parameters else _with_random_weights(network, generator)
    yield iter([("random pixels", whole, pixels)])


def _odd_layers(generator: Generator) -> list[tuple[Shape, Layer]]:
    """Layers at the edges of what is allowed, and some drawn anew each time."""
    fixed: list[tuple[Shape, Layer]] = [
        ((1, 1, 1), Convolution(1, 1)),
        ((3, 5, 7), Convolution(2, (5, 7))),
        ((17, 9, 6), Convolution(13, 3, padding=1, bias=False)),
        ((2, 11, 8), Convolution(5, 3, stride=2)),
        ((1, 10, 13), Convolution(3, 2, stride=3, bias=False)),
        ((4, 7, 12), Convolution(3, (1, 5), stride=(2, 1), padding=(0, 2))),
        ((2, 3, 3), Convolution(7, 5, padding=2)),
        ((5, 6, 6), Convolution(33, 1)),
        ((3, 7, 9), MaxPool(2)),
        ((2, 9, 8), MaxPool(3, stride=2)),
        ((1, 8, 11), MaxPool((1, 2), stride=3)),
        ((5, 4, 6), MaxPool((4, 6))),
        ((3, 7, 9), AveragePool(2)),
        ((2, 9, 8), AveragePool(3, stride=2)),
        ((4, 5, 5), AveragePool(5)),
        ((1, 1, 1), FullyConnected(1)),
        ((3, 5, 7), FullyConnected(11)),
        ((37, 1, 1), FullyConnected(3, bias=False)),
        ((5000, 1, 1), FullyConnected(2)),
        ((3, 5, 7), ReLU()),
        ((3, 5, 7), Tanh()),
        ((1,), Softmax()),
        ((37,), Softmax()),
    ]

    def draw(low: int, high: int) -> int:
        return int(generator.integers(low, high + 1))

    for _ in range(8):
        kernel, padding = (draw(1, 6), draw(1, 6)), (draw(0, 3), draw(0, 3))
        sizes = [max(1, k - 2 * p) + draw(0, 9) for k, p in zip(kernel, padding, strict=True)]
        stride, bias = (draw(1, 3), draw(1, 3)), bool(draw(0, 1))
        drawn = Convolution(draw(1, 19), kernel, stride=stride, padding=padding, bias=bias)
        fixed.append(((draw(1, 9), *sizes), drawn))
    return fixed


def _trials(shape: Shape, layer: Layer, generator: Generator) -> Iterator[Trial]:
    """A layer alone, as a network of its own, with each kind of inputs in turn."""
    picture = (*shape, 1, 1)[:3]
    layers: tuple[Layer, ...] = (layer,) if len(shape) == 3 else (Flatten(), layer)
    network = Network("layer", Pixels(picture), layers)
    size = (IMAGES, *picture)
    if not network.parameter_shapes:
        scale = 10.0 ** generator.uniform(-4, 2, size)
        yield "real numbers", network, _float32(generator.normal(size=size) * scale)
        yield "negative numbers", network, _float32(-generator.uniform(0.1, 90, size))
        yield "large numbers", network, _float32(generator.uniform(200, 1000, size))
        return
    small = np.array([-1, 0, 1])
    # At most 4096 products of up to 4095: their sum stays within the 24 bits of a float32.
    terms = max(math.prod(s[1:]) for s in network.parameter_shapes.values())
    kept = min(1.0, 2048 / terms)
    for inputs in ("whole numbers, large inputs", "whole numbers, large weights"):
        large_weights = inputs.endswith("weights")
        weights = {
            name: _float32(
                generator.integers(-LARGE, LARGE + 1, shape)
                if large_weights
                else generator.choice(small, shape) * (generator.random(shape) < kept)
            )
            for name, shape in network.parameter_shapes.items()
        }
        x = (
            generator.choice(small, size) * (generator.random(size) < kept)
            if large_weights
            else generator.integers(-LARGE, LARGE + 1, size)
        )
        yield inputs, network.with_parameters(weights), _float32(x)
    random = _with_random_weights(network, generator)
    yield "real numbers", random, _float32(generator.normal(size=size))


def _with_random_weights(network: Network, generator: Generator) -> Network:
    return network.with_parameters(random_parameters(network, generator))


def random_parameters(network: Network, generator: Generator) -> dict[str, NDArray[np.float32]]:
    """Normal weights, scaled so that activations neither die out nor blow up."""
    return {
        name: _float32(generator.normal(size=shape) / math.sqrt(max(1, math.prod(shape[1:]))))
        for name, shape in network.parameter_shapes.items()
    }


def _run(
    rung: Rung, device: str, inputs: str, network: Network, images: Inputs
) -> tuple[int, float, Fault | None]:
    """Run a network batch by batch and check every step against the reference.

    A step is checked on what the step before it really gave, so that the first wrong layer is
    the one that is named.
    """
    plan = uniform(network, rung, device, BATCH)
    program = Program(network, plan, {rung.name: rung})
    by_name = {stage.name: stage for stage in network.stages}
    compared, worst = 0, 0.0
    for first in range(0, len(images), BATCH):
        batch = images[first : first + BATCH]
        margins = [_guarded(program.runtime, np.full((BATCH, *shape), np.nan, np.float32))
                   for _, shape, _ in program.steps]  # fmt: skip
        program.outputs = [inside for _, inside in margins]
        whole_input, given = _guarded(program.runtime, batch)
        before: Any = batch
        for index, (step, buffer) in enumerate(
            zip(plan.steps, program.activations(given, batch.dtype == np.uint8), strict=True)
        ):
            stages = [by_name[name] for name in step.layers]
            where = _describe(stages, network)
            program.runtime.synchronise()
            actual = np.array(program.runtime.download(buffer))
            truth = reference.chain(stages, network.parameters, before, rung.precision)[-1]
            share, problem = compare(actual, truth)
            compared += actual.size
            worst = max(worst, share)
            if problem is None:
                problem = _damage(program.runtime, margins[index][0], BATCH * actual[0].size)
            if problem is None and not _same(program.runtime, given, batch):
                problem = "the kernel changed its input"
            if problem is not None:
                return compared, worst, Fault(where, f"{inputs}, image {first} on", problem)
            before = actual
        del whole_input
    return compared, worst, None


def compare(actual: NDArray[np.float32], truth: reference.Truth) -> tuple[float, str | None]:
    """The largest error as a share of its bound, and what is wrong first, if anything is."""
    if actual.shape != truth.value.shape:
        return math.inf, f"output has shape {actual.shape}, not {truth.value.shape}"
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


def _guarded(runtime: Runtime, content: Inputs) -> tuple[Buffer, Buffer]:
    """A buffer with `content` between two margins of poison, and the view of its inside."""
    poison = np.nan if content.dtype == np.float32 else 255
    whole = np.full(content.size + 2 * MARGIN, poison, content.dtype)
    whole[MARGIN:-MARGIN] = content.ravel()
    buffer = runtime.upload(whole)
    return buffer, buffer[MARGIN : MARGIN + content.size].reshape(content.shape)


def _damage(runtime: Runtime, whole: Buffer, inside: int) -> str | None:
    """Whether something was written outside an output."""
    values = np.array(runtime.download(whole))
    outside = np.concatenate([values[:MARGIN], values[MARGIN + inside :]])
    return None if np.isnan(outside).all() else "the kernel wrote outside its output"


def _same(runtime: Runtime, given: Buffer, batch: Inputs) -> bool:
    return bool(np.array_equal(np.asarray(runtime.download(given)), batch))


def _describe(stages: list[Stage], network: Network) -> str:
    first, last = stages[0], stages[-1]
    shape = dimensions(first.input_shape)
    if first is last:
        return f"{first.name} ({first.layer.summary or first.kind} on {shape})"
    return f"{first.name} to {last.name} of {network.name!r} on {shape}"


def _float32(values: NDArray[Any]) -> NDArray[np.float32]:
    return values.astype(np.float32)
