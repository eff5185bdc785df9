"""`network`: the whole network as one kernel.

A group of warps takes an image from its bytes to its probabilities without leaving the
multiprocessor: activations lie in shared memory, weights too, pooling and activation happen in
registers (`tilewright.fuse.cuda`). No activation is read from device memory, and nothing but
results is written there. Where a fully connected layer is too large for that, or pictures are,
there are a few kernels: `tilewright explain network` says which. It should win by as much as layers
spend on moving activations, least where one layer with many channels has all the work; it loses on
single images of large networks, which keep few multiprocessors busy (docs/ladder.md).
"""

from __future__ import annotations

from functools import partial

from tilewright.memory import DEVICE_PLANS
from tilewright.precision import FLOAT32, FP16, TF32
from tilewright.rungs.gpu.generated import generated, generated_candidates, generated_plan
from tilewright.rungs.gpu.prepare import missing, open_runtime
from tilewright.rungs.rung import Rung, whole_network

RUNG = Rung(
    name="network",
    idea="the whole network in one kernel: activations never leave the multiprocessor",
    against="tensor",
    devices=("cuda",),
    plan=generated_plan,
    candidates=generated_candidates,
    prepare=partial(generated, "network"),
    open_runtime=open_runtime,
    form="cuda",
    cut=whole_network,
    missing=missing,
    precisions=(FP16, TF32, FLOAT32),
    # As for few images, several blocks may add up one sum; or they may not.
    ways=({}, {"share_sums": False}),
    memories=DEVICE_PLANS,
)
