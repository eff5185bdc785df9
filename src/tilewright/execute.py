"""A plan made real: kernels built on a runtime, outputs allocated, images sent through."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.memory import FLOWS
from tilewright.model import zoo
from tilewright.model.layers import Shape
from tilewright.model.network import Network, Parameters, Stages
from tilewright.plan import Plan, check, uniform
from tilewright.rungs import support
from tilewright.rungs.rung import Launch, Options, Rung
from tilewright.runtime import Buffer, GpuRuntime, HostArray, Runtime, are_pixels
from tilewright.runtime.device import Device
from tilewright.runtime.gather import Gathering, compile_together
from tilewright.trace import Trace, reaching


@dataclass(frozen=True)
class ReadyStep:
    """A step of the plan, built. `launch` is None where there is nothing to compute."""

    layers: tuple[str, ...]
    launch: Launch | None
    shape: Shape
    only_input: bool
    takes: tuple[str, ...]
    buffer: int


@runtime_checkable
class OnDemand(Protocol):
    """A launch that compiles what a type and number of images need when the first ones come, or
    before."""

    def compile_for(self, pixels: bool, images: int) -> None: ...


def prepare(
    rung: Rung,
    runtime: Runtime | Gathering,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    pixels: bool,
    batch: int,
) -> Launch | None:
    """A step made ready for batches of images of a type, if there is anything to compute."""
    # Flattening alone is a matter of reading the same memory with another shape.
    if not any(stage.layer.computes for stage in stages):
        return None
    if not pixels and [stage.kind for stage in stages] == ["input"]:
        # Most networks of a proof meet no bytes: a third of its kernels would be compiled in vain.
        ready = cache(partial(rung.prepare, runtime, stages, parameters, options, rung.precision))
        return lambda x, out, *others: ready()(x, out, *others)
    launch = rung.prepare(runtime, stages, parameters, options, rung.precision)
    if isinstance(launch, OnDemand):
        launch.compile_for(pixels and stages[0].kind == "input", batch)
    return launch


def launches(
    network: Network,
    plan: Plan,
    rungs: Mapping[str, Rung],
    runtime: Runtime | Gathering,
    pixels: bool,
) -> Iterator[Launch | None]:
    """Every step of a plan made ready, in turn."""
    for step, stages in zip(plan.steps, parts(network, plan), strict=True):
        rung = rungs[step.rung].at(step.precision)
        yield prepare(rung, runtime, stages, network.parameters, step.options, pixels, plan.batch)


def parts(network: Network, plan: Plan) -> list[Stages]:
    """The stages of each step."""
    by_name = {stage.name: stage for stage in network.stages}
    return [tuple(by_name[name] for name in step.layers) for step in plan.steps]


class Program:
    """A network ready to run. Building is slow and done here; calling is all that is timed.

    Nothing is chosen here: the plan has all of it, and `rungs` those that it names.
    """

    def __init__(
        self,
        network: Network,
        plan: Plan,
        rungs: Mapping[str, Rung],
        building: Callable[[int, int], None] | None = None,
        pixels: bool = True,
        begun: bool = False,
    ) -> None:
        """`building` is told how many kernels are compiled and how many there are, where that may
        take a while. `pixels`: images will come as bytes; others are taken, too, but what they need
        is then compiled when they come. `begun`: somebody has its kernels compiled already.
        """
        if not network.parameters and network.parameter_shapes:
            which = network.name if zoo.holds(network) else "PATH.json"
            raise TilewrightError(
                f"network {network.name!r} has no weights: give some with --weights, "
                f"or make them with `tilewright train {which}`"
            )
        check(plan, network, rungs)
        steps = list(zip(plan.steps, parts(network, plan), strict=True))
        for step, stages in steps:
            support.check(rungs[step.rung], stages, plan.device)
        self.network = network
        self.plan = plan
        self.runtime: Runtime = rungs[plan.steps[0].rung].open_runtime(plan.device, plan.memory)

        made = partial(launches, network, plan, rungs, pixels=pixels)
        if not begun:
            compiled = compile_together(self.runtime, lambda gathered: list(made(gathered)))
            if building is not None:
                for done, _ in enumerate(as_completed(compiled), start=1):
                    building(done, len(compiled))
        self.steps: list[ReadyStep] = []
        for (step, stages), launch in zip(steps, made(self.runtime), strict=True):
            only_input = [stage.kind for stage in stages] == ["input"]
            shape = stages[-1].output_shape
            ready = ReadyStep(step.layers, launch, shape, only_input, step.takes, step.buffer)
            self.steps.append(ready)
        # Whether anything is computed of values that are float32 already.
        self.computes = any(step.launch and not step.only_input for step in self.steps)
        self.outputs: list[Buffer | None] = []
        self.capacity = 0

    @cached_property
    def gpu(self) -> GpuRuntime:
        """The runtime of a plan that needs a device with memory of its own."""
        assert isinstance(self.runtime, GpuRuntime), self.plan
        return self.runtime

    def create_outputs(self, images: int) -> None:
        """Allocate the output of every step for the largest batch of a run over `images`.

        Steps that share a buffer see the same memory, each with its own shape.
        """
        self.capacity = min(self.plan.batch, images)
        sizes: dict[int, int] = {}
        for step in self.steps:
            if step.launch:
                sizes[step.buffer] = max(sizes.get(step.buffer, 0), math.prod(step.shape))
        buffers = {
            number: self.runtime.allocate((self.capacity * size,)) for number, size in sizes.items()
        }
        self.outputs = [
            buffers[step.buffer][: self.capacity * math.prod(step.shape)].reshape(
                self.capacity, *step.shape
            )
            if step.launch
            else None
            for step in self.steps
        ]

    def __call__(
        self,
        images: HostArray,
        trace: Trace | None = None,
        progress: Callable[[int], None] = lambda done: None,
    ) -> NDArray[np.float32]:
        """The network's output for every image; what happened goes into `trace`, if given."""
        self.runtime.trace = trace
        if self.capacity < min(self.plan.batch, len(images)):
            self.create_outputs(len(images))
        results = np.empty((len(images), *self.network.output_shape), np.float32)
        FLOWS[self.plan.memory](self, images, results, progress)
        self.runtime.synchronise()
        return results

    def into(self, x: Buffer, out: Buffer) -> None:
        """Compute a batch that is on the device into a buffer that is there, too."""
        *_, last = self.activations(x, out)
        if not self.computes and not are_pixels(x):
            out[:] = last  # nothing but flattening

    def activations(self, x: Buffer, out: Buffer | None = None) -> Iterator[Buffer]:
        """The output buffer of every step for a batch, in turn; valid until the next call.

        Values that are float32 already enter the network as they are. The last step computes
        into `out`, if that is given.
        """
        images = len(x)
        pixels = are_pixels(x)
        last = max((i for i, step in enumerate(self.steps) if step.launch), default=-1)
        made: dict[str, Buffer] = {}
        for index, (step, output) in enumerate(zip(self.steps, self.outputs, strict=True)):
            x, *others = (made[name] for name in step.takes) if step.takes else (x,)
            if step.launch is None:
                x = x.reshape(images, *step.shape)
            elif pixels or not step.only_input:
                if out is not None and index == last:
                    target = out.reshape(images, *step.shape)
                else:
                    assert output is not None  # of every step that computes
                    target = output if images == self.capacity else output[:images]
                with reaching(self.runtime.trace, step.layers):
                    step.launch(x, target, *others)
                x = target
            made[step.layers[-1]] = x
            yield x


def program_of(
    network: Network,
    rung: Rung,
    device: Device,
    batch: int,
    memory: str | None = None,
    pixels: bool = True,
) -> Program:
    """A network with every layer by the same rung, which chooses for itself."""
    plan = uniform(network, rung, device, batch, memory)
    return Program(network, plan, {rung.name: rung}, pixels=pixels)


def begin_to_compile(
    network: Network, rung: Rung, device: Device, batch: int, memory: str | None, pixels: bool
) -> None:
    """What `program_of` will need, where a runtime can compile while something else is done."""
    plan = uniform(network, rung, device, batch, memory)
    runtime = rung.open_runtime(device, plan.memory)
    made = partial(launches, network, plan, {rung.name: rung}, pixels=pixels)
    compile_together(runtime, lambda gathered: list(made(gathered)))
