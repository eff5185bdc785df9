"""Layers whose CUDA kernels are generated for them (`tilewright.fuse.cuda`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from tilewright.model.network import Parameters, Stages
from tilewright.precision import Precision
from tilewright.rungs.rung import Launch, Options, as_options
from tilewright.runtime import cuda
from tilewright.runtime.device import Device

# Images up to which all candidates have the same kernels: `tune` and a trial time them with 100.
OTHERS_UP_TO = 64


def generated_plan(device: Device, stages: Stages, precision: Precision) -> Options:
    """How the layers are cut into kernels, and each kernel's arrangement."""
    from tilewright.fuse.cuda.arithmetic import ARITHMETICS
    from tilewright.fuse.cuda.cut import choose

    capability = cuda.gpu(device.index).capability
    return as_options(choose(stages, ARITHMETICS[precision.name], capability))


def network_plan(device: Device, stages: Stages, precision: Precision) -> Options:
    """The same, with other kernels for few images."""
    from tilewright.fuse.cuda.arithmetic import ARITHMETICS
    from tilewright.fuse.cuda.cut import choose, with_few

    capability, arithmetic = cuda.gpu(device.index).capability, ARITHMETICS[precision.name]
    many = choose(stages, arithmetic, capability)
    return as_options(with_few(many, stages, arithmetic, capability))


def generated_candidates(device: Device, stages: Stages, precision: Precision) -> Iterator[Options]:
    """Other arrangements of the same kernels, by the planner's estimate."""
    from tilewright.fuse.cuda.alternatives import alternatives
    from tilewright.fuse.cuda.arithmetic import ARITHMETICS

    capability = cuda.gpu(device.index).capability
    yield from map(as_options, alternatives(stages, ARITHMETICS[precision.name], capability))


def network_candidates(device: Device, stages: Stages, precision: Precision) -> Iterator[Options]:
    """The same for a network, whose few images have the kernels that the planner chose for them.

    Of others than its own choice those are for up to `OTHERS_UP_TO` images alone.
    """
    own = network_plan(device, stages, precision)
    up_to = cast(int, own["few_up_to"])
    for number, each in enumerate(generated_candidates(device, stages, precision)):
        few_up_to = min(up_to, OTHERS_UP_TO) if number else up_to
        yield {**each, "few": own["few"], "few_up_to": few_up_to}


def generated(
    rung: str,
    runtime: cuda.CudaRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    from tilewright.fuse.cuda.choice import Choice
    from tilewright.fuse.cuda.run import FusedNetwork

    choice = Choice.of(options)
    return FusedNetwork(runtime, rung, precision.name, stages, parameters, choice)
