"""The fused rung against the libraries, on six small networks and four batch sizes.

    pip install -e '.[onnxruntime,torch]' openvino
    python -m benchmarks.cpu --json FILE.json > FILE.md

Everything runs in one process on the same cores and takes turns; a turn lasts at least 20 ms (as
many calls as that needs) and starts with a pause. Each engine gets float32 images, normalised
beforehand, and must agree with the fused rung before it is timed. A missing library is named and
left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cpu.peak import Peak
from tilewright.measure.samples import interleave
from tilewright.model import zoo
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.rungs.vendor.onnxruntime import onnx_model
from tilewright.rungs.vendor.torch import layer_function
from tilewright.truth.trials import random_parameters

Engine = Callable[[np.ndarray], Any]
BATCHES = (1, 16, 100, 1000)
SHORTEST_TURN = 0.02


def networks() -> list[Network]:
    """The zoo's two, a LeNet-5, a 3x3 MNIST net, a deeper CIFAR net, one with strides."""
    three = (Convolution(64, 3, padding=1), ReLU())
    return [
        zoo.network("cifar10"),
        zoo.network("ece408"),
        Network("lenet5", Pixels((1, 32, 32)), (
            Convolution(6, 5), Tanh(), AveragePool(2), Convolution(16, 5), Tanh(), AveragePool(2),
            Flatten(), FullyConnected(120), Tanh(), FullyConnected(84), Tanh(), FullyConnected(10),
            Softmax())),
        Network("mnist3x3", Pixels((1, 28, 28)), (
            Convolution(32, 3, padding=1), ReLU(), MaxPool(2), Convolution(64, 3, padding=1),
            ReLU(), MaxPool(2), Flatten(), FullyConnected(128), ReLU(), FullyConnected(10),
            Softmax())),
        Network("cifar64", Pixels((3, 32, 32)), (
            *three, *three, MaxPool(2), *three, *three, MaxPool(2), *three, MaxPool(2), Flatten(),
            FullyConnected(10), Softmax())),
        Network("strided", Pixels((3, 32, 32)), (
            Convolution(16, 3, stride=2, padding=1), ReLU(),
            Convolution(32, 3, stride=2, padding=1), ReLU(),
            Convolution(64, 3, stride=2, padding=1), ReLU(),
            AveragePool(4), Flatten(), FullyConnected(10), Softmax())),
    ]  # fmt: skip


def engines(network: Network) -> dict[str, Engine]:
    """Every engine that is installed, ready to be called on a batch."""
    made: dict[str, Engine] = {"fused": tilewright.compile(network)}
    for name, make in (
        ("onnxruntime", _onnxruntime), ("openvino", _openvino), ("torch", _torch),
        ("torch.compile", _torch_compiled),
    ):  # fmt: skip
        try:
            made[name] = make(network)
        except ImportError as error:
            print(f"{name} left out: {error}", file=sys.stderr)
    return made


def _onnxruntime(network: Network) -> Engine:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = environment.cpu_cores()
    model = onnx_model(network.stages[1:], network.parameters)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def _openvino(network: Network) -> Engine:
    import openvino

    core = openvino.Core()
    model = core.read_model(onnx_model(network.stages[1:], network.parameters))
    settings = {
        "INFERENCE_NUM_THREADS": environment.cpu_cores(), "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda x: request.infer([x], share_inputs=True)[0]


def _torch_module(network: Network) -> Any:
    import torch

    functions = []
    for stage in network.stages[1:]:
        tensors = [torch.from_numpy(network.parameters[n].copy()) for n in stage.parameter_shapes]
        functions.append(layer_function(stage, *tensors))

    def forward(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return forward


def _torch(network: Network) -> Engine:
    import torch

    forward = _torch_module(network)

    def run(x: np.ndarray) -> Any:
        with torch.inference_mode():
            return forward(torch.from_numpy(x)).numpy()

    return run


def _torch_compiled(network: Network) -> Engine:
    import torch

    torch.compiler.reset()  # or it gives up compiling after so many shapes of other networks
    forward = torch.compile(_torch_module(network), dynamic=False)

    def run(x: np.ndarray) -> Any:
        with torch.no_grad():
            return forward(torch.from_numpy(x)).numpy()

    return run


def repeated(engine: Engine, images: np.ndarray) -> tuple[Callable[[], None], int]:
    """The engine called as often as a turn needs, and how often that is."""
    engine(images)
    start = time.perf_counter()
    engine(images)
    calls = max(1, int(SHORTEST_TURN / (time.perf_counter() - start)))

    def turn() -> None:
        for _ in range(calls):
            engine(images)

    return turn, calls


def measure(network: Network, batch: int, made: dict[str, Engine], repeats: int) -> dict[str, Any]:
    """Seconds for one batch by engine: median, best, uncertainty and every sample."""
    images = np.random.default_rng(batch).normal(size=(batch, *network.input.shape))
    images = images.astype(np.float32)
    expected = made["fused"](images)
    turns, calls = {}, {}
    for name, engine in made.items():
        np.testing.assert_allclose(engine(images), expected, atol=1e-4, err_msg=name)
        turns[name], calls[name] = repeated(engine, images)
    samples = interleave(turns, repeats)
    return {
        name: {
            "median_seconds": sample.median / calls[name],
            "best_seconds": sample.best / calls[name],
            "uncertainty": sample.uncertainty if sample.interval.known else None,
            "calls_a_turn": calls[name],
            "samples_seconds": [value / calls[name] for value in sample.seconds],
        }
        for name, sample in samples.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    peak = Peak()
    rows = []
    for bare in networks():
        network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
        made = engines(network)
        for batch in BATCHES:
            for _ in range(5):
                peak.measure()
            results = measure(network, batch, made, arguments.repeats)
            executed = sum(stage.inside_flops for stage in network.stages)
            rows.append({"network": network.name, "flop": network.flops, "batch": batch,
                         "executed_flop": executed, "engines": results})  # fmt: skip
            print(f"{network.name} at batch {batch} done", file=sys.stderr)
    document = {
        "environment": plain(environment.fingerprint()),
        "peak_flops": peak.best,
        "rows": rows,
    }
    with atomic_write(arguments.json) as file:
        file.write(json.dumps(document, indent=1).encode())
    print(markdown(document))


def markdown(document: dict[str, Any]) -> str:
    """Images a second by engine, and how the fused rung compares with the best of the others."""
    about = document["environment"]
    names = list(document["rows"][0]["engines"])
    lines = [
        f"{about['cpu']}, {about['cores']} cores, measured peak "
        f"{document['peak_flops'] / 1e9:.0f} GFLOP/s, {about['date'][:10]}; "
        + ", ".join(f"{k} {v}" for k, v in about["libraries"].items() if k in names),
        "",
        "Images a second (medians); the last columns are about the fused rung.",
        "",
        f"| network | batch | {' | '.join(names)} | of peak | times the best other |",
        f"| --- | ---: | {' | '.join(['---:'] * len(names))} | ---: | ---: |",
    ]
    for row in document["rows"]:
        speeds = {n: row["batch"] / e["median_seconds"] for n, e in row["engines"].items()}
        best = max(speed for name, speed in speeds.items() if name != "fused")
        share = speeds["fused"] * row["executed_flop"] / document["peak_flops"]
        cells = " | ".join(f"{speeds[name]:,.0f}" for name in names)
        lines.append(
            f"| {row['network']} | {row['batch']} | {cells} | {100 * share:.0f} % | "
            f"{speeds['fused'] / best:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
