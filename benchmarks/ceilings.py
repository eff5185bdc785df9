"""What bounds a network on a CUDA GPU, measured: products, device memory, the way from the host."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from benchmarks.peers import set_tf32, timed, types

from tilewright.execute import program_of
from tilewright.measure.peak import measured_peak
from tilewright.model.network import Network
from tilewright.rungs import choose
from tilewright.runtime.device import CUDA

PRODUCTS = ("fp16", "tf32", "fp32")
STREAMED_AT_A_TIME = 5_000


def ceilings() -> dict[str, float]:
    """Measured rates: matrix products in each precision, device memory read and written."""
    import torch

    found = {"fp32_plain": measured_peak(CUDA) or 0.0}
    for precision in PRODUCTS:
        set_tf32(precision == "tf32")
        a = torch.randn(8192, 8192, device="cuda", dtype=types(precision))
        seconds = timed({"product": lambda a=a: a @ a}, 5)["product"]["median_seconds"]
        found[f"{precision}_product"] = 2 * 8192**3 / seconds
    source = torch.empty(2 * 10**9, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    seconds = timed({"copy": lambda: target.copy_(source)}, 5)["copy"]["median_seconds"]
    found["bytes"] = 2 * len(source) / seconds
    return found


def streamed(network: Network, precision: str, images: int, repeats: int) -> dict[str, Any]:
    """From pinned host memory to probabilities there, and the copy of the pixels alone."""
    import cupy

    rung = choose(CUDA, "network", precision)
    program = program_of(network, rung, CUDA, STREAMED_AT_A_TIME, "streamed")
    runtime: Any = program.runtime
    pixels = runtime.pinned((images, *network.input.shape), np.uint8)
    pixels[:] = np.random.default_rng(0).integers(0, 256, pixels.shape, np.uint8)
    device = cupy.empty(pixels.shape, cupy.uint8)
    program(pixels)
    samples: dict[str, list[float]] = {"streamed": [], "copy": []}
    for _ in range(repeats):
        start = time.perf_counter()
        program(pixels)
        samples["streamed"].append(time.perf_counter() - start)
        cupy.cuda.runtime.deviceSynchronize()
        start = time.perf_counter()
        device.data.copy_from_host_async(pixels.ctypes.data, pixels.nbytes, cupy.cuda.Stream.null)
        cupy.cuda.runtime.deviceSynchronize()
        samples["copy"].append(time.perf_counter() - start)
    return {
        "network": network.name, "precision": precision, "batch": images,
        "at_a_time": STREAMED_AT_A_TIME, "bytes": int(pixels.nbytes),
        **{f"{name}_seconds": float(np.median(values)) for name, values in samples.items()},
        "samples_seconds": samples,
    }  # fmt: skip
