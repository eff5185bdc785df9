"""A tuner's work on a real device: candidates timed, choices proven, plans timed in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.execute import Program, prepare
from tilewright.measure.conditions import Conditions, Watch
from tilewright.measure.samples import Rounds, Sample, interleave, pause_before
from tilewright.memory import pin
from tilewright.model.layers import Flatten, Layer, Pixels, Shape
from tilewright.model.network import Network, Stage
from tilewright.plan import Plan, uniform
from tilewright.rungs.rung import Rung
from tilewright.runtime import Buffer, HostArray
from tilewright.runtime.device import Device
from tilewright.runtime.gather import CompilesAhead, Gathering, compile_together
from tilewright.trace import Trace
from tilewright.truth.before_run import as_one, choosing, in_worker
from tilewright.truth.trials import Trial, layer_trials, pixels_trial, whole_trials
from tilewright.truth.verify import fresh_seed, prove
from tilewright.tune.search import Candidate, Timer
from tilewright.tune.spans import Span

# What a GPU takes to leave its idle clocks; what is slower than that is warm after two calls.
WARM_SECONDS = 0.03
# A sample is of as many calls as take so long, so that launches follow one another.
SAMPLE_SECONDS, MOST_CALLS = 2e-3, 50
ROUNDS = Rounds(least=9, most=49, seconds=30.0, narrow=0.01)


@dataclass
class OnDevice:
    """A network on a device, by some rungs; images are for the whole of it."""

    network: Network
    images: HostArray
    device: Device
    batch: int
    rungs: Mapping[str, Rung]
    built: tuple[Span, Candidate, Alone] | None = None
    conditions: Conditions | None = None
    guarded: dict[str, Rung] = field(default_factory=dict)
    begun: set[tuple[str, Candidate]] = field(default_factory=set)  # to be compiled

    @property
    def images_at_once(self) -> int:
        return min(self.batch, len(self.images))

    @cached_property
    def description(self) -> str:
        rung = next(iter(self.rungs.values()))
        return rung.open_runtime(self.device, rung.memories[0]).describe()

    def timer(self, span: Span) -> Timer:
        """Seconds of a span's kernels for one batch, by a candidate."""

        def seconds(candidate: Candidate, repeats: int) -> Sequence[float]:
            with launchable(candidate):
                alone = self._alone(span, candidate)
                return [alone.seconds() for _ in range(repeats)]

        return seconds

    def ahead(self, span: Span, candidates: Sequence[Candidate]) -> None:
        """Begin to compile candidates side by side."""
        network, stages = part_of(self.network, span), span.stages
        for candidate in candidates:
            if (span.name, candidate) in self.begun:
                continue
            self.begun.add((span.name, candidate))
            rung = self._choosing(span, candidate)
            runtime = rung.open_runtime(self.device, rung.memories[0])
            if not isinstance(runtime, CompilesAhead):
                return

            def gather(gathering: Gathering, rung: Rung = rung) -> None:
                plan = uniform(network, rung, self.device, self.images_at_once)
                for step, part in zip(plan.steps, rung.cut(network), strict=True):
                    pixels = stages[0].kind == "input"
                    prepare(
                        rung, gathering, part, network.parameters, step.options, pixels, plan.batch
                    )

            with suppress(TilewrightError):  # whoever times it will say what is wrong
                compile_together(runtime, gather)

    def _choosing(self, span: Span, candidate: Candidate) -> Rung:
        rung = self.rungs[candidate.rung]
        return choosing(rung, [(span.stages, candidate.plain)]) if candidate.plain else rung

    def _alone(self, span: Span, candidate: Candidate) -> Alone:
        if self.built is None or self.built[:2] != (span, candidate):
            self.built = None  # its memory is free before the next takes some
            if self.rungs[candidate.rung].origin is not None and span.stages[0].kind == "conv":
                self._isolated_proof(span, candidate)
            self.built = span, candidate, self.alone(span, candidate)
        return self.built[2]

    def alone(self, span: Span, candidate: Candidate) -> Alone:
        """A part of the network by a candidate, ready on the device."""
        rung = self._choosing(span, candidate)
        return Alone(part_of(self.network, span), rung, self.device, self.images_at_once)

    def _isolated_proof(self, span: Span, candidate: Candidate) -> None:
        """A kernel of somebody's is right before it runs in this process; else an error."""
        rung = self.rungs[candidate.rung]
        guarded = self.guarded.setdefault(rung.name, in_worker(rung))
        chosen = choosing(guarded, [(span.stages, candidate.plain)])
        if fault := self._fault(chosen, self._trials(span, chosen)):
            raise TilewrightError(f"computes something wrong: {fault}")

    def prove(self, span: Span, candidate: Candidate) -> str | None:
        """What is wrong with a choice, on inputs that leave mistakes no room; None if nothing is.

        Layers that have no choice are tried with the whole plan.
        """
        if not span.fused and span.stages[0].kind != "conv":
            return None
        rung = self._choosing(span, candidate)
        return self._fault(rung, self._trials(span, rung))

    def prove_plan(self, plan: Plan) -> tuple[str, str] | None:
        """The first wrong layer of a plan as a whole, and what is wrong with it."""
        rung = as_one(plan, self.rungs)
        seed = fresh_seed()
        generator = np.random.default_rng(seed)
        tried = [pixels_trial(self.network, self.images_at_once, generator)]
        fault = prove(rung, self.device, tried, seed).fault
        if fault is None:
            return None
        assert fault.evidence is not None  # of a step that was carried out
        return fault.evidence.stages[0].name, str(fault)

    def _trials(self, span: Span, rung: Rung) -> list[Trial]:
        generator = np.random.default_rng(fresh_seed())
        if span.fused:
            batch = self.images_at_once
            return list(whole_trials(self.network, rung.precision, True, batch, generator))
        (stage,) = span.stages
        return list(layer_trials(stage.input_shape, stage.layer, rung.precision, generator))

    def _fault(self, rung: Rung, tried: list[Trial]) -> str | None:
        try:
            fault = prove(rung, self.device, tried, seed=0).fault
        except TilewrightError as error:
            return str(error)
        return None if fault is None else str(fault)

    def race(self, plans: Mapping[str, Plan], progress: Callable[[str], None]) -> dict[str, Sample]:
        """The whole network by each plan, over all images, in turns."""
        programs = {name: Program(self.network, plan, self.rungs) for name, plan in plans.items()}
        images = pin(next(iter(programs.values())), self.images)
        turns = {name: (lambda each=each: each(images)) for name, each in programs.items()}
        watch = Watch(self.device)
        samples = interleave(
            turns, ROUNDS, progress=progress, seed=fresh_seed(), between=watch,
            pause=pause_before([self.device]),
        )  # fmt: skip
        self.conditions = watch.conditions()
        return samples


@contextmanager
def launchable(candidate: Candidate) -> Iterator[None]:
    """A driver that will not launch a candidate is a problem of that one."""
    try:
        yield
    except RuntimeError as error:
        raise TilewrightError(f"{candidate}: {error}") from error


class Alone:
    """A part of a network on one batch that lies on the device."""

    def __init__(self, network: Network, rung: Rung, device: Device, images: int) -> None:
        self.program = Program(network, uniform(network, rung, device, images), {rung.name: rung})
        generator = np.random.default_rng(1)
        shape = (images, *network.input.shape)
        if network.name == INSIDE:
            values = generator.normal(size=shape).astype(np.float32)
        else:
            values = generator.integers(0, 256, shape, np.uint8)
        runtime = self.program.runtime
        self.x: Buffer = runtime.upload(values)
        self.out: Buffer = runtime.allocate((images, *network.output_shape))
        self.program.create_outputs(images)
        self._call(1)  # whatever happens the first time
        once, begin = self._call(1), time.perf_counter()
        self.calls = min(MOST_CALLS, max(1, math.ceil(SAMPLE_SECONDS / max(once, 1e-9))))
        while once < WARM_SECONDS and time.perf_counter() - begin < WARM_SECONDS:
            self._call(self.calls)

    def seconds(self) -> float:
        return self._call(self.calls)

    def _call(self, times: int) -> float:
        """Kernel seconds of one call, on average over some."""
        runtime = self.program.runtime
        runtime.trace = trace = Trace()
        for _ in range(times):
            self.program.into(self.x, self.out)
        runtime.synchronise()
        runtime.trace = None
        return sum(event.seconds for event in trace.of("kernel")) / times


INSIDE = "part"  # of a network; what comes in are values, not pixels


def part_of(network: Network, span: Span) -> Network:
    """A span as a network of its own, with its weights. What it takes from outside are the same
    values everywhere: for a time that is as good as others.
    """
    if len(span.stages) == len(network.stages):
        return network
    layers: tuple[Layer, ...] = tuple(stage.layer for stage in span.stages)
    if span.first == 0:
        sources = [stage.sources for stage in span.stages[1:]]
        layers = layers[1:] or (Flatten(),)
        made = Network("input", network.input, layers, sources=tuple(sources) or None)
    else:
        shape = span.stages[0].input_shape
        flat = (Flatten(),) if len(shape) == 1 else ()
        inside = [_inside(stage, span, shape, len(flat)) for stage in span.stages]
        pixels = Pixels((*shape, 1, 1)[:3])
        taken = [*[(0,) for _ in flat], *inside]
        made = Network(INSIDE, pixels, (*flat, *layers), sources=tuple(taken))
    given = [network.parameters[name] for x in span.stages for name in x.parameter_shapes]
    return made.with_parameters(dict(zip(made.parameter_shapes, given, strict=True)))


def _inside(stage: Stage, span: Span, shape: Shape, flat: int) -> tuple[int, ...]:
    """Where a layer of a span takes its inputs from, in the span's own network."""
    pairs = list(zip(stage.sources, stage.input_shapes, strict=True))
    if any(each < span.first and given != shape for each, given in pairs):
        raise TilewrightError(
            f"layer {stage.name!r} takes values of several shapes, which `tune` cannot time alone; "
            "`ladder` compares whole rungs"
        )
    return tuple(flat if each < span.first else each - span.first + 1 + flat for each, _ in pairs)
