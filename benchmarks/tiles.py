"""Tiles of the `tuned` rung for every convolution of both networks, timed one by one on a GPU.

    pip install -e '.[cuda,torch]'
    python -m benchmarks.tiles --output benchmarks/results/DATE-tiles.json

The figures behind the model that chooses a tile: the 40 tiles it likes best and 60 drawn at random,
10,000 images, the median of 3 launches after one of warm-up. Beside them cuDNN's float32
convolution (TF32 off), with its algorithm chosen by trial: in a process of its own, because PyTorch
would keep an algorithm that was chosen before.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tilewright import environment
from tilewright.files import atomic_write
from tilewright.model.load import load
from tilewright.model.network import Network, Stage
from tilewright.results.document import plain
from tilewright.rungs.gpu import tuned
from tilewright.rungs.gpu.design import Geometry
from tilewright.rungs.gpu.prepare import GpuLaunch
from tilewright.rungs.vendor.torch import layer_function
from tilewright.runtime import nvrtc
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA
from tilewright.trace import Trace

IMAGES, LIKED, DRAWN, LAUNCHES = 10_000, 40, 60, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    runtime = CudaRuntime(CUDA)
    layers = [
        _layer(runtime, network, stage)
        for network in (load("cifar10"), load("ece408"))
        for stage in network.stages
        if stage.kind == "conv"
    ]
    document = {"environment": plain(environment.fingerprint()), "images": IMAGES, "layers": layers}
    with atomic_write(given.output) as file:
        file.write(json.dumps(document).encode())


def _layer(runtime: CudaRuntime, network: Network, stage: Stage) -> dict[str, Any]:
    geometry = Geometry.of(stage)
    x = runtime.cupy.random.standard_normal((IMAGES, *stage.input_shape), dtype=np.float32)
    out = runtime.allocate((IMAGES, *stage.output_shape))
    ranked = sorted(
        set(tuned.fitting(geometry, runtime.limits)), key=lambda tile: tuned.cost(geometry, tile)
    )
    drawn = np.random.default_rng(1).choice(len(ranked), min(DRAWN, len(ranked)), replace=False)
    chosen = list(dict.fromkeys([*ranked[:LIKED], *(ranked[i] for i in drawn)]))
    designs = [tuned.build(geometry, asdict(tile)) for tile in chosen]
    sources = [design.works[0].source for design in designs]
    with ThreadPoolExecutor() as pool:
        compiled = pool.map(
            lambda s: nvrtc.compile_cubin(s.name, s.complete, runtime.architecture), sources
        )
    rows = []
    for tile, design, code in zip(chosen, designs, compiled, strict=True):
        launch = GpuLaunch(runtime, stage, design, network.parameters)
        rows.append(
            {
                "tile": asdict(tile),
                "cost": tuned.cost(geometry, tile),
                "milliseconds": _milliseconds(runtime, lambda go=launch: go(x, out)),
                "registers": code.registers,
                "spilled_bytes": code.spilled_bytes,
                "shared_bytes": code.shared_bytes,
            }
        )
    rows.sort(key=lambda row: row["milliseconds"])
    cudnn = _cudnn_milliseconds(network, stage, x)
    best = min(rows, key=lambda row: (row["cost"], row["tile"]["staged"]))
    print(
        f"{network.name} {stage.name}: cuDNN {cudnn:.3f} ms; fastest tile "
        f"{rows[0]['milliseconds']:.3f} ms, the model's {best['milliseconds']:.3f} ms"
    )
    return {
        "network": network.name,
        "layer": stage.name,
        "cudnn_milliseconds": cudnn,
        "tiles": rows,
    }


def _milliseconds(runtime: CudaRuntime, launch: Callable[[], None]) -> float:
    launch()
    trace = runtime.trace = Trace()
    for _ in range(LAUNCHES):
        launch()
    runtime.synchronise()
    runtime.trace = None
    return 1e3 * statistics.median(event.seconds for event in trace.of("kernel"))


def _cudnn_milliseconds(network: Network, stage: Stage, x: Any) -> float:
    import torch

    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    names = stage.parameter_shapes
    tensors = [torch.tensor(np.array(network.parameters[name]), device="cuda") for name in names]
    convolve = layer_function(stage, *tensors)
    images = torch.as_tensor(x, device="cuda")
    times = []
    with torch.inference_mode():
        for _ in range(3):
            convolve(images)
        for _ in range(7):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            convolve(images)
            after.record()
            after.synchronize()
            times.append(before.elapsed_time(after))
    return statistics.median(times)


if __name__ == "__main__":
    main()
