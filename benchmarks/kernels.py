"""Every kernel of compiled networks on a CUDA GPU, timed one by one by PyTorch's profiler.

    python -m benchmarks.kernels ece408,10000,fp16 cifar10,50000,tf32

Networks are those of `benchmarks.builds`, with random weights; images lie on the device as bytes,
and calls are `tilewright.compile`'s, with `out`. Above the kernels (averages of ten calls,
profiled) stands what a call takes without the profiler: the median and the least of 15 turns of ten
calls.
"""

from __future__ import annotations

import statistics
import sys

import numpy as np
from benchmarks.builds import every_network

import tilewright
from tilewright.truth.trials import random_parameters

TURNS, CALLS = 15, 10


def show(name: str, images: int, precision: str) -> None:
    import torch
    from torch.profiler import ProfilerActivity, profile

    bare = every_network()[name]
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    compiled = tilewright.compile(network, device="cuda", precision=precision, batch=images)
    pixels = torch.randint(0, 256, (images, *network.input.shape), device="cuda").to(torch.uint8)
    out = torch.empty((images, *network.output_shape), device="cuda")

    def calls() -> None:
        for _ in range(CALLS):
            compiled(pixels, out=out)

    calls()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    microseconds = []
    for _ in range(TURNS):
        events[0].record()
        calls()
        events[1].record()
        torch.cuda.synchronize()
        microseconds.append(1000 * events[0].elapsed_time(events[1]) / CALLS)
    print(
        f"{name}, {images:,} images, {precision}: {statistics.median(microseconds):.1f} µs "
        f"(least {min(microseconds):.1f})"
    )
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        calls()
        torch.cuda.synchronize()
    for each in profiled.key_averages():
        if each.device_time_total:
            print(f"    {each.key:40} {each.device_time_total / each.count:9.1f} µs", flush=True)


if __name__ == "__main__":
    for asked in sys.argv[1:]:
        name, images, precision = asked.split(",")
        show(name, int(images), precision)
