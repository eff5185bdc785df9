"""What a GPU rung does with a layer: launches, resources, traffic, and which limit binds.

All of it follows from the rung's design, the compiler's account and a GPU's rates; nothing runs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilewright.errors import unknown
from tilewright.limits import limit, rates_of
from tilewright.model.network import Network, Stage
from tilewright.rungs import choose
from tilewright.rungs.gpu.cost import cost, multiply_adds
from tilewright.rungs.gpu.design import Design, NotForLayer, Work
from tilewright.rungs.gpu.prepare import layer_design, layer_options, most_images
from tilewright.rungs.rung import Options, Rung
from tilewright.runtime import cuda, nvrtc
from tilewright.runtime.device import CUDA, Device
from tilewright.runtime.dialect import (
    USUAL_CONSTANT_BYTES,
    USUAL_SHARED_BYTES,
    USUAL_THREADS,
    DoesNotFit,
    Grid,
    Limits,
)
from tilewright.runtime.multiprocessor import REFERENCE, Gpu, Occupancy, occupancy
from tilewright.runtime.nvrtc import Compiled
from tilewright.trace import Cost

USUAL = Limits(USUAL_THREADS, USUAL_SHARED_BYTES, USUAL_CONSTANT_BYTES, 141 * 10**9, 132)


@dataclass(frozen=True)
class Target:
    """What kernels are designed for (`limits`), and what they are compiled and timed for (`gpu`).

    `note` says what had to be assumed.
    """

    limits: Limits
    gpu: Gpu
    note: str = ""

    @property
    def uncompiled(self) -> str | None:
        """Why nothing is compiled, and registers are unknown; None if it is."""
        return nvrtc.missing()


@dataclass(frozen=True)
class KernelFacts:
    """One kernel of a layer, for a batch. What only the CUDA compiler knows may be None."""

    work: Work
    grid: Grid
    compiled: Compiled | None
    occupancy: Occupancy | None
    multiply_adds: int
    cost: Cost
    issued_bytes: float  # what its threads ask of device memory; caches may serve it
    broadcasts: float  # from constant memory, one for a whole warp
    limit: str
    seconds: float  # at best, if nothing but that limit held it up

    @property
    def loads_each(self) -> float | None:
        """Loads for each multiply-add."""
        return self.cost.loads / self.multiply_adds if self.multiply_adds else None


@dataclass(frozen=True)
class LayerFacts:
    """A layer's kernels, with the rung's choice for it, or why there are none."""

    stage: Stage
    images: int = 0  # of a launch; a batch may take several launches
    launches: int = 0
    kernels: tuple[KernelFacts, ...] = ()
    problem: str | None = None
    options: Options = field(default_factory=dict)


def target(device: Device | None, rung: Rung) -> Target:
    """The device named, or the CUDA GPU that is here, or the usual limits and a reference GPU."""
    if device is None:
        if cuda.missing(CUDA) is None:
            return target(CUDA, rung)
        return Target(USUAL, REFERENCE, f"no CUDA GPU here: an {REFERENCE.name} is assumed")
    choose(
        device, rung.origin or rung.name, rung.precision.name
    )  # refuses a device that is not here
    if device.kind == "cuda":
        return Target(cuda.limits(device.index), cuda.gpu(device.index))
    from tilewright.runtime import opencl

    found = opencl.devices()[device.index]
    return Target(
        opencl.limits(found),
        REFERENCE,
        f"designed for the limits of {found.name.strip()}; rates are those of an {REFERENCE.name}",
    )


def chosen(network: Network, layer: str | None) -> list[Stage]:
    """The layer named; otherwise the convolutions, or all layers where there are none."""
    stages = {stage.name: stage for stage in network.stages}
    if layer is None:
        convolutions = [stage for stage in stages.values() if stage.kind == "conv"]
        return convolutions or list(stages.values())
    if layer not in stages:
        raise unknown("layer", layer, stages)
    return [stages[layer]]


def designed(rung: Rung, stage: Stage, limits: Limits) -> Design | str:
    """A layer's kernels, or why there are none."""
    if not stage.layer.computes:
        return "no kernel: the same memory, read with another shape"
    assert rung.convolutions is not None
    try:
        options = layer_options(stage, rung.convolutions, limits)
        design = layer_design(stage, rung.convolutions, options).needed_by(stage)
        for work in design.works:
            work.source.check(limits)
    except NotForLayer as error:
        return str(error)
    except DoesNotFit as error:
        return f"does not fit: {error}"
    return design


def explain(rung: Rung, stages: Iterable[Stage], at: Target, images: int) -> list[LayerFacts]:
    return [_layer(rung, stage, at, images) for stage in stages]


def _layer(rung: Rung, stage: Stage, at: Target, images: int) -> LayerFacts:
    design = designed(rung, stage, at.limits)
    if isinstance(design, str):
        return LayerFacts(stage, problem=design)
    most = most_images(design, at.limits)
    launched = min(images, most)
    kernels = tuple(_kernel(stage, design, work, at.gpu, launched) for work in design.works)
    assert rung.convolutions is not None
    options = layer_options(stage, rung.convolutions, at.limits)
    return LayerFacts(stage, launched, -(-images // most), kernels, options=options)


def _kernel(stage: Stage, design: Design, work: Work, gpu: Gpu, images: int) -> KernelFacts:
    compiled = occupied = None
    if nvrtc.missing() is None and work.source.language != "opencl":
        compiled = nvrtc.compile_source(work.source, gpu.architecture)
        occupied = occupancy(math.prod(work.source.block), compiled, gpu.multiprocessor)
    products = images * multiply_adds(work)
    least = cost(stage, design, work, images)
    traffic, grid = work.traffic, work.grid(images)
    covered = work.covered(images)
    bound = limit(least, rates_of(gpu), math.prod(grid))
    assert bound is not None  # a GPU's rates are known
    return KernelFacts(
        work, grid, compiled, occupied, products, least,
        issued_bytes=4 * (covered * traffic.global_loads + images * traffic.stores),
        broadcasts=covered * traffic.constant_loads, limit=bound.name, seconds=bound.seconds,
    )  # fmt: skip
