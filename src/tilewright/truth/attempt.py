"""One trial of a rung, call by call: outputs against the reference, memory against its guards."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tilewright.execute import Program
from tilewright.model.layers import dimensions
from tilewright.model.layers.rounding import Array
from tilewright.model.network import Network, Stage
from tilewright.plan import taken, uniform
from tilewright.rungs.gpu.prepare import GpuLaunch
from tilewright.rungs.rung import Options, Rung
from tilewright.runtime import Buffer, Runtime
from tilewright.runtime.device import Device
from tilewright.truth import reference
from tilewright.truth.evidence import (
    INPUT_POISON,
    OUTPUT_POISON,
    PREFILL,
    Again,
    Damage,
    Evidence,
    Fault,
)
from tilewright.truth.guards import Guarded, GuardingRuntime, guarding
from tilewright.truth.trials import Inputs, Trial


class Truths:
    """What each step of a network should make of an image, computed once for the same image."""

    def __init__(self, trial: Trial, rung: Rung) -> None:
        self.network, self.precision = trial.network, rung.precision
        self.steps = [list(part) for part in rung.cut(trial.network)]
        self.known: list[dict[bytes, reference.Truth]] = [{} for _ in self.steps]

    def of(self, index: int, given: tuple[Inputs, ...]) -> list[reference.Truth]:
        """A step's outputs for some images, one by one."""
        known = self.known[index]
        images = list(zip(*given, strict=True))
        keys = [b"".join(part.tobytes() for part in image) for image in images]
        finite = [all(bool(np.isfinite(part).all()) for part in image) for image in images]
        fresh = {key: place for place, key in enumerate(keys) if key not in known}
        for alike in (True, False):  # NaN would leave the bound of no other image as it is
            places = {key: place for key, place in fresh.items() if finite[place] == alike}
            if places:
                chosen = list(places.values())
                truths = self._chain(index, [part[chosen] for part in given])
                known.update(zip(places, truths, strict=True))
        return [known[key] for key in keys]

    def _chain(self, index: int, given: list[Inputs]) -> Iterator[reference.Truth]:
        stages, parameters = self.steps[index], self.network.parameters
        places = {stage.name: stage.index for stage in self.network.stages}
        names = taken(self.network, stages)
        x: Inputs | dict[int, Inputs] = given[0]
        if names:  # not the pixels
            x = {places[name]: part for name, part in zip(names, given, strict=True)}
        with np.errstate(invalid="ignore", over="ignore"):
            chain = reference.chain(stages, parameters, x, self.precision)
        for value, bound in zip(chain[-1].value, chain[-1].bound, strict=True):
            yield reference.Truth(value, bound)


class Attempt:
    """A trial of a rung: every step of every call checked against the reference.

    A step is checked on what the step before it really gave, so that the first wrong layer is
    the one that is named.
    """

    def __init__(
        self,
        rung: Rung,
        device: Device,
        trial: Trial,
        truths: Truths,
        repeatable: bool,
        way: Options,
    ) -> None:
        self.trial, self.truths, self.repeatable = trial, truths, repeatable
        if rung.convolutions is not None:
            rung = replace(rung, open_runtime=guarding(rung.open_runtime))
        plan = uniform(trial.network, rung, device, trial.capacity, options=way)
        pixels = trial.images.dtype == np.uint8
        self.program = Program(trial.network, plan, {rung.name: rung}, pixels=pixels)
        runtime, images = self.program.runtime, trial.images
        self.guards = runtime if isinstance(runtime, GuardingRuntime) else None
        self.runtime: Runtime = runtime if self.guards is None else self.guards.inner
        room = (trial.capacity, *images.shape[1:])
        self.given = Guarded(self.runtime, "input", room, images.dtype, INPUT_POISON)
        # Values that are float32 already skip the input step, and a Flatten has no output of its
        # own.
        self.outputs = [
            self._output((trial.capacity, *step.shape))
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
        # What each step gave in the call before.
        self.earlier: dict[int, NDArray[np.float32]] = {}

    def _output(self, shape: tuple[int, ...]) -> Guarded:
        return Guarded(self.runtime, "output", shape, np.float32, OUTPUT_POISON)

    def fault(self) -> Fault | None:
        """The first thing wrong in any of the calls."""
        for number, call in enumerate(self.trial.calls):
            fault = self._call(number, call)
            if fault is not None:
                return fault
        return None

    def _call(self, number: int, call: tuple[int, ...]) -> Fault | None:
        batch = np.ascontiguousarray(self.trial.images[list(call)])
        self.given.fill(batch)
        for guarded in self.used:
            guarded.fill(None)
        if self.guards is not None:
            self.guards.poison()
        start = self.given.inside(len(call))
        made: dict[str, tuple[Inputs, Buffer]] = {}
        for index, buffer in enumerate(self.program.activations(start)):
            self.runtime.synchronise()
            actual = np.array(self.runtime.download(buffer))
            output, step = self.outputs[index], self.program.steps[index]
            read = [made[name] for name in step.takes] or [(batch, start)]
            before = tuple(values for values, _ in read)
            source = tuple(held for _, held in read)
            if output is not None:
                output.expect(actual)
            image, problem = self._problem(index, before, actual)
            damage = self._damage(index)
            again: Again | None = None
            if output is not None and (problem or damage or self.repeatable):
                again = self._again(index, source, buffer, before, problem or damage)
                if problem is None and not damage and not _equal(again.same, actual):
                    problem = _difference(actual, again.same)
            if problem is not None or damage:
                seen = Evidence(
                    tuple(self.truths.steps[index]), self.trial.network.parameters,
                    self.truths.precision, self.trial.inputs, number + 1, image, before[0],
                    *self._truth(index, before), actual, again, self.earlier.get(index),
                    damage, self.trial.arrival, before[1:],
                )  # fmt: skip
                which = f"{self.trial.inputs}, call {number + 1} with {_listed(call)}"
                layer = _describe(self.truths.steps[index], self.trial.network)
                return Fault(layer, which, problem or str(damage[0]), seen)
            self.earlier[index] = actual
            made[step.layers[-1]] = actual, buffer
        return None

    def _problem(
        self, index: int, before: tuple[Inputs, ...], actual: NDArray[np.float32]
    ) -> tuple[int | None, str | None]:
        """What is wrong with a step's output, given its inputs, and in which image."""
        self.compared += actual.size
        for image, truth in enumerate(self.truths.of(index, before)):
            finite = all(bool(np.isfinite(part[image]).all()) for part in before)
            spoiled = self.trial.arrival and not finite
            share, problem = (swallowed if spoiled else compare)(actual[image], truth)
            self.worst = max(self.worst, share)
            if problem is not None:
                return image, f"image {image} of {len(actual)}: {problem}"
        return None, None

    def _truth(self, index: int, before: tuple[Inputs, ...]) -> tuple[Array, Array]:
        truths = self.truths.of(index, before)
        return np.stack([each.value for each in truths]), np.stack([each.bound for each in truths])

    def _damage(self, index: int) -> tuple[Damage, ...]:
        """Next to the step first; the rest when all is done, as there may be much of it."""
        last = index == len(self.outputs) - 1
        steps = self.program.steps
        beside = (*steps[index].takes, steps[index].layers[-1])
        by_name = zip(steps, self.outputs, strict=True)
        near = [each for step, each in by_name if each and step.layers[-1] in beside]
        found = [each.damage() for each in (self.given, *(self.used if last else near))]
        if self.guards is not None:
            launches = (step.launch for step in self.program.steps)
            found += self.guards.damage(
                {
                    id(buffer): name
                    for launch in launches
                    if isinstance(launch, GpuLaunch)
                    for name, buffer in launch.buffers.items()
                }
            )
        return tuple(each for each in found if each is not None)

    def _again(
        self,
        index: int,
        source: tuple[Buffer, ...],
        target: Buffer,
        before: tuple[Inputs, ...],
        looked_at: object,
    ) -> Again:
        """A step once more on the same input, in the same memory; into PREFILL only if something
        is wrong with it."""
        launch, output = self.program.steps[index].launch, self.outputs[index]
        assert launch is not None and output is not None

        def run(content: NDArray[np.float32] | None) -> NDArray[np.float32]:
            kept = output.expected.copy()
            output.fill(content)
            output.expected[:] = kept
            for held, values in zip(source, before, strict=True) if looked_at else ():
                # It may have been written to.
                held[:] = self.runtime.upload(np.ascontiguousarray(values).reshape(held.shape))
            if self.guards is not None:
                self.guards.poison()
                if looked_at:
                    self.guards.restore()
            launch(source[0], target, *source[1:])
            self.runtime.synchronise()
            return np.array(self.runtime.download(target))

        same = run(None)
        return Again(same, run(np.full(target.shape, PREFILL)) if looked_at else same)


def _equal(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    return bool(((one == other) | (np.isnan(one) & np.isnan(other))).all())


def _difference(first: NDArray[np.float32], second: NDArray[np.float32]) -> str:
    place, count = _first(~((first == second) | (np.isnan(first) & np.isnan(second))))
    return (
        f"output[{', '.join(map(str, place))}] is {first[place]:.9g} the first time and "
        f"{second[place]:.9g} the second time, of the same input ({count} of {first.size} outputs "
        "differ)"
    )


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


def _describe(stages: list[Stage], network: Network) -> str:
    first, last = stages[0], stages[-1]
    shape = dimensions(first.input_shape)
    if first is last:
        return f"{first.name} ({first.layer.summary or first.kind} on {shape})"
    return f"{first.name} to {last.name} of {network.name!r} on {shape}"
