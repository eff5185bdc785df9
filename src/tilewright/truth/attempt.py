"""One trial of a rung, call by call: outputs against the reference, memory against its guards."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tilewright.execute import Program
from tilewright.model.layers import dimensions
from tilewright.model.network import Network, Stage
from tilewright.plan import Plan
from tilewright.rungs.gpu.prepare import GpuLaunch
from tilewright.rungs.rung import Rung
from tilewright.runtime import Buffer, Runtime
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
from tilewright.truth.guards import MARGIN, Guarded, GuardingRuntime, fetched, guarding
from tilewright.truth.trials import Inputs, Trial
from tilewright.truth.truths import Known, Number, Truths


@dataclass(frozen=True)
class Made:
    """What is in a buffer, image by image, and the numbers that it is known by."""

    values: Inputs
    buffer: Buffer
    numbers: tuple[Number, ...]


class Attempt:
    """A trial of a rung: every step of every call checked against the reference.

    A step is checked on what the step before it really gave, so that the first wrong layer is
    the one that is named.
    """

    def __init__(
        self, rung: Rung, plan: Plan, trial: Trial, truths: Truths, repeatable: bool
    ) -> None:
        self.trial, self.truths, self.repeatable = trial, truths, repeatable
        if rung.convolutions is not None:
            rung = replace(rung, open_runtime=guarding(rung.open_runtime))
        pixels = trial.images.dtype == np.uint8
        # Its kernels are being compiled since it was drawn.
        self.program = Program(trial.network, plan, {rung.name: rung}, pixels=pixels, begun=True)
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
        start = Made(batch, self.given.inside(len(call)), call)
        made: dict[str, Made] = {}
        damage: tuple[Damage, ...]
        for index, buffer in enumerate(self.program.activations(start.buffer)):
            step, output = self.program.steps[index], self.outputs[index]
            read = [made[name] for name in step.takes] or [start]
            before = tuple(each.values for each in read)
            source = tuple(each.buffer for each in read)
            if output is None and index < len(self.outputs) - 1:
                # Nothing has run: it is what was there before, perhaps with another shape.
                actual, damage = before[0].reshape(buffer.shape), ()
            else:
                actual, damage = self._given_by(index, buffer)
            numbers = list(zip(*(each.numbers for each in read), strict=True))
            known = self.truths.of(index, numbers, before)
            right, problem = self._problem(known, actual)
            again: Again | None = None
            if output is not None and (problem or damage or self.repeatable):
                again = self._again(index, source, buffer, before, problem or damage)
                if problem is None and not damage and not _equal(again.same, actual):
                    problem = _difference(actual, again.same)
            if problem is not None or damage:
                seen = Evidence(
                    tuple(self.truths.steps[index]), self.trial.network.parameters,
                    self.truths.precision, self.trial.inputs, number + 1,
                    None if len(right) == len(actual) else len(right), before[0],
                    np.stack([each.truth.value for each in known]),
                    np.stack([each.truth.bound for each in known]), actual, again,
                    self.earlier.get(index), damage, self.trial.arrival, before[1:],
                )  # fmt: skip
                which = f"{self.trial.inputs}, call {number + 1} with {_listed(call)}"
                layer = _describe(self.truths.steps[index], self.trial.network)
                return Fault(layer, which, problem or str(damage[0]), seen)
            self.earlier[index] = actual
            made[step.layers[-1]] = Made(actual, buffer, tuple(right))
        return None

    def _given_by(
        self, index: int, buffer: Buffer
    ) -> tuple[NDArray[np.float32], tuple[Damage, ...]]:
        """What a step gave, and what it wrote elsewhere, all of it fetched at once."""
        output, others = self.outputs[index], self._looked_at(index)
        parts = [part for each in others for part in each.looked_at]
        first, *rest = fetched(self.runtime, [output.buffer if output else buffer, *parts])
        found: list[Damage | None] = []
        if output is None:
            actual = np.array(first)
        else:
            size = math.prod(buffer.shape)
            actual = np.array(first[MARGIN : MARGIN + size]).reshape(buffer.shape)
            output.expect(actual)
            found.append(output.damage(first))
        held = iter(rest)
        found += [each.damage(*(next(held) for _ in each.looked_at)) for each in others]
        return actual, tuple(each for each in found if each is not None)

    def _problem(
        self, known: list[Known], actual: NDArray[np.float32]
    ) -> tuple[list[Number], str | None]:
        """The numbers of a step's outputs, image by image, up to the first that is wrong; and what
        is wrong with that."""
        self.compared += actual.size
        right: list[Number] = []
        for each, output in zip(known, actual, strict=True):
            number = each.seen(output)
            if number is None:
                spoiled = self.trial.arrival and not each.finite
                share, problem = (swallowed if spoiled else compare)(output, each.truth)
                self.worst = max(self.worst, share)
                if problem is not None:
                    return right, f"image {len(right)} of {len(actual)}: {problem}"
                number = self.truths.found_right(each, output)
            right.append(number)
        return right, None

    def _looked_at(self, index: int) -> list[Guarded]:
        """What a step was given, beside its output; all the rest when all is done, as there may be
        much of it."""
        last = index == len(self.outputs) - 1
        steps = self.program.steps
        takes = steps[index].takes
        by_name = zip(steps, self.outputs, strict=True)
        near = [each for step, each in by_name if each and step.layers[-1] in takes]
        found = [each for each in (self.used if last else near) if each != self.outputs[index]]
        if last or not near:  # it was given the input, or the same memory with another shape
            found.insert(0, self.given)
        if self.guards is not None:
            found += self.guards.looked_at(
                {
                    id(buffer): name
                    for step in (steps if last else steps[index : index + 1])
                    if isinstance(step.launch, GpuLaunch)
                    for name, buffer in step.launch.buffers.items()
                },
                all_of_it=last,
            )
        return found

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
            kept = output.content
            output.fill(content)
            output.expect(kept)
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
        error = np.subtract(actual, truth.value)
        np.abs(error, out=error)
        right = error <= truth.bound  # false for NaN
    if right.all():
        # Where the bound is zero, so is the error.
        np.divide(error, truth.bound, out=error, where=truth.bound > 0)
        return float(error.max(initial=0.0)), None
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
