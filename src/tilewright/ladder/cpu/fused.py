"""`fused`: the whole network as one machine-code function, made for this network and this CPU.

All shapes are constants, activations stay in cache from pixels to probabilities, and activation
and pooling happen in registers at the end of each convolution (`tilewright.fuse.cpu`). Lanes are
images, so that no layer's shape leaves a vector half empty; for fewer images than that takes, lanes
are output channels, and all cores work on one image. It wins least where a layer has a few channels
more than vectors hold and the images are few: with 4 to 16 images of `ece408` it lost to ONNX
Runtime on a Xeon (benchmarks/README.md).
"""

from __future__ import annotations

import math
from functools import partial

from tilewright.ladder.rung import Launch, Rung, Stages, launch_of, whole_network
from tilewright.model.layers import Pixels
from tilewright.model.network import Network, Parameters
from tilewright.runtime import FunctionRuntime
from tilewright.runtime.cpu import open_runtime


def prepare(
    runtime: FunctionRuntime, stages: Stages, parameters: Parameters, single: float | None = None
) -> Launch:
    """`single` is what an image costs by channels; 0 or infinite, it leaves no choice."""
    from tilewright.fuse.cpu.run import FusedNetwork

    pixels = stages[0].layer
    assert isinstance(pixels, Pixels)  # the rung takes networks whole
    network = Network("fused", pixels, tuple(stage.layer for stage in stages[1:]))
    fused = FusedNetwork(network.with_parameters(parameters), single=single)
    return launch_of(runtime, "fused", stages, fused.run, fused.parts)


RUNG = Rung(
    name="fused",
    idea="the whole network as one function for this CPU: activations stay in registers and cache",
    against="im2col",
    devices=("cpu",),
    prepare=prepare,
    open_runtime=open_runtime,
    form="llvm",
    skips_taps=True,
    cut=whole_network,
    ways=(partial(prepare, single=0.0), partial(prepare, single=math.inf)),
)
