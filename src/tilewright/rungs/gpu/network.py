"""`network`: the whole network as one kernel.

A group of warps takes an image from its bytes to its probabilities without leaving the
multiprocessor: activations lie in shared memory, weights too, pooling and activation happen in
registers (`tilewright.fuse.cuda`). No activation is read from device memory, and nothing but
results is written there. Where a fully connected layer is too large for that, or pictures are,
there are a few kernels: `tilewright explain network` says which. It should win by as much as layers
spend on moving activations, least where one layer with many channels has all the work. A single
image of a large network would keep few multiprocessors busy: for few images every such layer is a
kernel of its own, spread over all of them (docs/ladder.md).
"""

from __future__ import annotations

from functools import partial

from tilewright.memory import DEVICE_PLANS
from tilewright.precision import FLOAT32, FP16, TF32, TF32X3
from tilewright.rungs.gpu.generated import generated, network_candidates, network_plan
from tilewright.rungs.gpu.prepare import missing, open_runtime
from tilewright.rungs.rung import Rung, whole_network

MOST_IMAGES = 2**31 - 1

RUNG = Rung(
    name="network",
    idea="the whole network in one kernel: activations never leave the multiprocessor",
    against="tensor",
    devices=("cuda",),
    plan=network_plan,
    candidates=network_candidates,
    prepare=partial(generated, "network"),
    open_runtime=open_runtime,
    form="cuda",
    cut=whole_network,
    missing=missing,
    precisions=(FP16, TF32, FLOAT32, TF32X3),
    # Few images have kernels of their own, many have others. In both, several blocks may add up one
    # sum; or they may not.
    ways=(
        {"few_up_to": 0},
        {"few_up_to": 0, "share_sums": False},
        {"few_up_to": MOST_IMAGES},
    ),
    memories=DEVICE_PLANS,
)
