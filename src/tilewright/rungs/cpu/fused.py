"""`fused`: the whole network as one machine-code function, made for this network and this CPU.

All shapes are constants, activations stay in cache from pixels to probabilities, and a residual's
sum, activation and pooling happen in registers at the end of each convolution
(`tilewright.fuse.cpu`). Branches are in the same function. Lanes are images, so that no layer's
shape leaves a vector half empty; for fewer images than that takes, lanes are output channels, and
all cores work on one image; large fully connected layers then take several images at once. It wins
least where libraries, too, are near the CPU's peak, as with 64 channels and more, and where the
images are few and a layer has a few channels more than vectors hold (docs/ladder.md).

In the classes `fp32-winograd` and `fp32-winograd4` convolutions of 3x3 with stride 1 are computed
by Winograd's algorithm, tiles of 2x2 or 4x4 outputs, in the second also those of 5x5, tiles of 2x2,
where that pays and lanes are images. Its roundings are others, so it must be asked for. A NaN or an
infinity in the input spoils all outputs of the tiles that see it, not only those whose windows have
it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from tilewright.model.layers import Pixels
from tilewright.model.network import Network, Parameters, Stages
from tilewright.precision import FLOAT32, FP32_WINOGRAD, FP32_WINOGRAD4, Precision
from tilewright.rungs.rung import (
    Launch,
    Options,
    Rung,
    as_options,
    launch_of,
    whole_network,
)
from tilewright.runtime import FunctionRuntime
from tilewright.runtime.cpu import open_runtime
from tilewright.runtime.device import Device

if TYPE_CHECKING:
    from tilewright.fuse.cpu.build import Machine
    from tilewright.fuse.cpu.schedule import Schedule

# Networks whose layers differ: a proof tries each with many weights, ten times in a row.
REMEMBERED = 20


def plan(device: Device, stages: Stages, precision: Precision) -> Options:
    """Both schedules, for the vectors of this CPU."""
    from tilewright.fuse.cpu.build import host
    from tilewright.fuse.cpu.choice import choose

    return as_options(choose(_network(stages), host(), precision))


def candidates(device: Device, stages: Stages, precision: Precision) -> Iterator[Options]:
    """Other tiles of both schedules."""
    from tilewright.fuse.cpu.alternatives import alternatives
    from tilewright.fuse.cpu.build import host

    yield from map(as_options, alternatives(_network(stages), host(), precision))


def prepare(
    runtime: FunctionRuntime,
    stages: Stages,
    parameters: Parameters,
    options: Options,
    precision: Precision,
) -> Launch:
    from tilewright.fuse.cpu.build import host
    from tilewright.fuse.cpu.choice import SINGLE, Choice
    from tilewright.fuse.cpu.run import FusedNetwork

    machine, choice = host(), Choice.of(options)
    fused = FusedNetwork(
        _network(stages).with_parameters(parameters),
        machine,
        single=SINGLE[choice.images],
        plans=_schedules(stages, machine, msgspec.json.encode(choice), precision),
    )
    return launch_of(runtime, "fused", stages, fused.run, fused.parts)


@lru_cache(maxsize=REMEMBERED)
def _schedules(
    stages: Stages, machine: Machine, choice: bytes, precision: Precision
) -> tuple[Schedule, Schedule]:
    from tilewright.fuse.cpu.choice import Choice, build

    chosen = msgspec.json.decode(choice, type=Choice)
    return build(_network(stages), machine, chosen, precision)


@lru_cache(maxsize=REMEMBERED)
def _network(stages: Stages) -> Network:
    pixels = stages[0].layer
    assert isinstance(pixels, Pixels)  # the rung takes networks whole
    layers = tuple(stage.layer for stage in stages[1:])
    return Network("fused", pixels, layers, sources=tuple(s.sources for s in stages[1:]))


RUNG = Rung(
    name="fused",
    idea="the whole network as one function for this CPU: activations stay in registers and cache",
    against="im2col",
    devices=("cpu",),
    precisions=(FLOAT32, FP32_WINOGRAD, FP32_WINOGRAD4),
    plan=plan,
    candidates=candidates,
    prepare=prepare,
    open_runtime=open_runtime,
    form="llvm",
    skips_taps=True,
    cut=whole_network,
    ways=({"images": "few"}, {"images": "many"}),
    fast_ways=({"images": "many", "winograd": "all"},),
)
