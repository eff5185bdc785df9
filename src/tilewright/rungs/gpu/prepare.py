"""A design made real on a GPU: kernels compiled, parameters sent, buffers between kernels made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.memory import DEVICE_PLANS
from tilewright.model.layers import Convolution
from tilewright.model.network import Parameters, Stage, Stages
from tilewright.precision import Precision
from tilewright.rungs import rung as contract
from tilewright.rungs.gpu.cost import cost
from tilewright.rungs.gpu.design import (
    BLOCK_THREADS,
    Array,
    Convolutions,
    Design,
    Geometry,
    NotForLayer,
    Options,
    Work,
)
from tilewright.rungs.gpu.layers import other_argument, other_layer
from tilewright.rungs.gpu.offered import checked
from tilewright.rungs.rung import Launch, Rung
from tilewright.runtime import Buffer, GpuKernel, GpuRuntime
from tilewright.runtime.device import GPU_KINDS, Device
from tilewright.runtime.dialect import DoesNotFit, Limits
from tilewright.runtime.registry import gpu_backend
from tilewright.trace import Cost, moving

# Buffers between a layer's kernels take at most this share of a device's memory, and this many
# bytes; larger batches go through in pieces.
SCRATCH_SHARE, SCRATCH_BYTES = 1 / 8, 2 * 10**9


def gpu_rung(name: str, idea: str, convolutions: Convolutions, against: str | None = None) -> Rung:
    """A rung that computes convolutions so, and the other layers like all GPU rungs."""

    def plan(device: Device, stages: Stages, precision: Precision) -> Options:
        (stage,) = stages
        limits = limits_of(device)
        with naming(stage, limits):
            return layer_options(stage, convolutions, limits)

    def candidates(device: Device, stages: Stages, precision: Precision) -> Iterable[Options]:
        (stage,) = stages
        if stage.kind != "conv":
            return ()
        with naming(stage, limits_of(device)):
            offered = serving(stage, convolutions).candidates
        return offered(Geometry.of(stage), limits_of(device))

    def prepare(
        runtime: GpuRuntime,
        stages: Stages,
        parameters: Parameters,
        options: contract.Options,
        precision: Precision,
    ) -> Launch:
        (stage,) = stages
        with naming(stage, runtime.limits):
            offered = checked(stage, serving(stage, convolutions), runtime.limits, options)
            design = layer_design(stage, convolutions, offered)
            return GpuLaunch(runtime, stage, design, parameters)

    return Rung(
        name=name, idea=idea, against=against, devices=GPU_KINDS, plan=plan, prepare=prepare,
        open_runtime=open_runtime, missing=missing, memories=DEVICE_PLANS,
        convolutions=convolutions, candidates=candidates, form="dialect",
    )  # fmt: skip


def layer_options(stage: Stage, convolutions: Convolutions, limits: Limits) -> Options:
    """What a rung with such convolutions chooses for a layer; only convolutions have a choice."""
    if type(stage.layer) is not Convolution:
        return {}
    return serving(stage, convolutions).choose(Geometry.of(stage), limits)


def serving(stage: Stage, convolutions: Convolutions) -> Convolutions:
    """Those of a rung or, where they have no code for what a layer is, those of `direct`."""
    lacking = stage.layer.specials - convolutions.specials
    if not lacking:
        return convolutions
    if convolutions.alone:
        raise NotForLayer(
            f"kernel files are not for layers with {' and '.join(sorted(lacking))}; with otherwise "
            '= "direct" in its header that rung takes such layers'
        )
    from tilewright.rungs.gpu.direct import RUNG

    assert RUNG.convolutions is not None
    return RUNG.convolutions


def layer_design(stage: Stage, convolutions: Convolutions, options: Options) -> Design:
    """The kernels of any layer on a rung with such convolutions."""
    if type(stage.layer) is Convolution:
        return serving(stage, convolutions).build(Geometry.of(stage), options)
    return other_layer(stage)


@contextmanager
def naming(stage: Stage, limits: Limits) -> Iterator[None]:
    """What does not fit names the layer, and a rung that would."""
    try:
        yield
    except NotForLayer as error:
        raise NotForLayer(f"{stage.name}: {error}") from error
    except DoesNotFit as error:
        # Only a convolution has other kernels on another rung, and direct's take the least.
        other = stage.kind == "conv" and limits.threads >= BLOCK_THREADS
        hint = "; rung direct needs none of it" if other else ""
        raise DoesNotFit(f"{stage.name}: {error}{hint}") from error


def limits_of(device: Device) -> Limits:
    """What a device that is here gives a kernel."""
    return gpu_backend(device.kind).device_limits(device)


def open_runtime(device: Device, memory: str) -> GpuRuntime:
    return gpu_backend(device.kind).open_runtime(device, memory)


def missing(device: Device) -> str | None:
    return gpu_backend(device.kind).missing(device)


def constant_argument(work: int) -> str:
    """Under which name a design's parameters have the constant memory of one of its kernels."""
    return f"constant {work}"


def most_images(design: Design, limits: Limits) -> int:
    """Images that go through a layer's kernels in one launch."""
    size = 4 * sum(design.scratch.values())
    limit = min(SCRATCH_BYTES, SCRATCH_SHARE * limits.memory_bytes)
    most = min(work.most_images for work in design.works)
    return max(1, min(most, int(limit // size))) if size else most


@dataclass
class GpuLaunch:
    """A layer's kernels on a device. `send_parameters` copies the weights there once more."""

    runtime: GpuRuntime
    stage: Stage
    design: Design
    parameters: Parameters
    kernels: list[tuple[Work, GpuKernel]] = field(init=False)
    sent: list[tuple[str, Buffer, Array]] = field(init=False)
    buffers: dict[str, Buffer] = field(init=False)
    capacity: int = field(init=False, default=0)
    costs: dict[int, list[Cost]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        runtime = self.runtime
        self.design = self.design.needed_by(self.stage)
        self.kernels = [(work, runtime.compile(work.source)) for work in self.design.works]
        packed = self._packed()
        self.sent = []
        self.buffers = {}
        for index, (_, kernel) in enumerate(self.kernels):
            if kernel.constant is not None:
                name = constant_argument(index)
                array = packed.pop(name)
                with moving(runtime.trace, f"{self.stage.name}.{name}"):
                    runtime.write(kernel.constant, array)
                self.sent.append((name, kernel.constant, array))
        for name, size in self.design.workspace.items():
            self.buffers[name] = runtime.allocate((size,))
        used = {name for work in self.design.works for name in work.arguments}
        for name, array in packed.items():
            if name in used:
                with moving(runtime.trace, f"{self.stage.name}.{name}"):
                    self.buffers[name] = runtime.upload(array)
                # Zeros in place of a bias are not the network's: they stay where they are.
                if name != "bias" or f"{self.stage.name}.bias" in self.parameters:
                    self.sent.append((name, self.buffers[name], array))

    def send_parameters(self) -> None:
        for name, buffer, array in self.sent:
            with moving(self.runtime.trace, f"{self.stage.name}.{name}"):
                self.runtime.write(buffer, array)

    def __call__(self, x: Buffer, out: Buffer, *others: Buffer) -> None:
        most = self.most
        if len(x) <= most:
            self._piece(x, out, *others)
            return
        for first in range(0, len(x), most):
            self._piece(*(each[first : first + most] for each in (x, out, *others)))

    def _piece(self, x: Buffer, out: Buffer, *others: Buffer) -> None:
        images = len(x)
        if images > self.capacity:
            for name, size in self.design.scratch.items():
                self.buffers[name] = self.runtime.allocate((images, size))
            self.capacity = images
        given: dict[str, Buffer | int] = {**self.buffers, "x": x, "out": out, "images": images}
        given |= {other_argument(number): other for number, other in enumerate(others, 1)}
        for (work, kernel), least in zip(self.kernels, self._costs(images), strict=True):
            arguments = [{**given, **work.numbers}[name] for name in work.arguments]
            self.runtime.enqueue(kernel, work.grid(images), arguments, (self.stage.name,), least)

    def _costs(self, images: int) -> list[Cost]:
        if images not in self.costs:
            works = self.design.works
            self.costs[images] = [cost(self.stage, self.design, work, images) for work in works]
        return self.costs[images]

    @cached_property
    def most(self) -> int:
        return most_images(self.design, self.runtime.limits)

    def _packed(self) -> dict[str, Array]:
        name, shapes = self.stage.name, self.stage.parameter_shapes
        if not shapes:
            return {}
        weight = self.parameters[f"{name}.weight"]
        bias = self.parameters.get(f"{name}.bias")
        # A layer without bias has one of zeros: the sum starts there either way.
        zeros = np.zeros(len(weight), np.float32)
        return self.design.pack(weight, zeros if bias is None else bias)
