"""The fused rung against the libraries, on six small networks and nine batch sizes.

    pip install -e '.[onnxruntime,torch]' openvino
    python -m benchmarks.cpu --json FILE.json > FILE.md
    taskset -c 0 python -m benchmarks.cpu --busy --engines onnxruntime openvino --json FILE.json

Everything runs in one process on the same cores and takes turns; a turn lasts at least 20 ms (as
many calls as that needs) and starts with a pause. Each engine gets float32 images, normalised
beforehand, and must agree with the fused rung before it is timed. A missing library is named and
left out. OpenVINO takes part as its users call it: with its settings for latency, and with those
for throughput, a batch then in as many requests as it likes best. Where Winograd's algorithm is for
a layer of the network, the fused rung takes part in that class, too; libraries choose their
algorithms themselves.

With others at work on the machine elapsed time says little. `--busy` counts the processor's seconds
instead, which is fair on a single core: threads that wait for each other spend some, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.drawn import every_drawn
from benchmarks.strangers import strangers

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cpu.peak import Peak
from tilewright.measure.samples import Sample, interleave, ratio
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
from tilewright.precision import FP32_WINOGRAD4
from tilewright.results.document import plain
from tilewright.rungs.vendor.onnxruntime import onnx_model
from tilewright.rungs.vendor.torch import layer_function
from tilewright.truth.trials import random_parameters

Engine = Callable[[np.ndarray], Any]
BATCHES = (1, 2, 4, 8, 16, 32, 64, 100, 1000)
SHORTEST_TURN = 0.02
OURS = ("fused", "fused fp32-winograd4")


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


def engines(network: Network, wanted: Sequence[str]) -> dict[str, Engine]:
    """Ours, and those of the wanted that are installed, ready to be called on a batch."""
    made: dict[str, Engine] = {"fused": tilewright.compile(network)}
    if any(FP32_WINOGRAD4.transforms(layer.kernel, layer.stride, layer.dilation, layer.groups)
           for layer in network.layers if isinstance(layer, Convolution)):  # fmt: skip
        made[OURS[1]] = tilewright.compile(network, precision=OURS[1].split()[1])
    for name in wanted:
        try:
            made |= {name: make(network) for name, make in LIBRARIES[name].items()}
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


def _openvino_compiled(network: Network, hint: str) -> Any:
    import openvino

    core = openvino.Core()
    model = core.read_model(onnx_model(network.stages[1:], network.parameters))
    settings = {
        "INFERENCE_NUM_THREADS": environment.cpu_cores(), "PERFORMANCE_HINT": hint,
        "INFERENCE_PRECISION_HINT": "f32",
    }  # fmt: skip
    return core.compile_model(model, "CPU", settings)


def _openvino(network: Network) -> Engine:
    request = _openvino_compiled(network, "LATENCY").create_infer_request()
    return lambda x: request.infer([x], share_inputs=True)[0]


def _openvino_throughput(network: Network) -> Engine:
    compiled = _openvino_compiled(network, "THROUGHPUT")
    most = compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")
    requests = [compiled.create_infer_request() for _ in range(most)]

    def run(x: np.ndarray) -> np.ndarray:
        parts = np.array_split(x, min(most, len(x)))
        for request, part in zip(requests, parts, strict=False):
            request.start_async([part], share_inputs=True)
        for request, _ in zip(requests, parts, strict=False):
            request.wait()
        found = (request.get_output_tensor(0).data for request in requests[: len(parts)])
        return np.concatenate(list(found))

    return run


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


# Engines by the library that they are of.
LIBRARIES: dict[str, dict[str, Callable[[Network], Engine]]] = {
    "onnxruntime": {"onnxruntime": _onnxruntime},
    "openvino": {"openvino": _openvino, "openvino throughput": _openvino_throughput},
    "torch": {"torch": _torch},
    "torch.compile": {"torch.compile": _torch_compiled},
}


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


def measure(
    network: Network, batch: int, made: dict[str, Engine], repeats: int, clock: Callable[[], float]
) -> dict[str, Any]:
    """Seconds for one batch by engine: median, best, uncertainty and every sample."""
    images = np.random.default_rng(batch).normal(size=(batch, *network.input.shape))
    images = images.astype(np.float32)
    expected = made["fused"](images)
    turns, calls = {}, {}
    for name, engine in made.items():
        np.testing.assert_allclose(engine(images), expected, atol=1e-4, err_msg=name)
        turns[name], calls[name] = repeated(engine, images)
    samples = interleave(turns, repeats, clock=clock)
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
    parser.add_argument("--networks", nargs="+", default=[each.name for each in networks()])
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--engines", nargs="+", choices=list(LIBRARIES), default=list(LIBRARIES))
    parser.add_argument("--busy", action="store_true", help="seconds of the one core that is given")
    arguments = parser.parse_args()
    if arguments.busy and environment.cpu_cores() > 1:
        parser.error(
            "--busy is for a single core: taskset -c 0 python -m benchmarks.cpu --busy ..."
        )
    clock = time.process_time if arguments.busy else time.perf_counter
    peak = Peak()
    rows = []
    known = (*networks(), *strangers(), *every_drawn())
    for bare in (each for each in known if each.name in arguments.networks):
        network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
        made = engines(network, arguments.engines)
        for batch in arguments.batches:
            for _ in range(5):
                peak.measure()
            results = measure(network, batch, made, arguments.repeats, clock)
            executed = sum(stage.inside_flops for stage in network.stages)
            rows.append({"network": network.name, "flop": network.flops, "batch": batch,
                         "executed_flop": executed, "engines": results})  # fmt: skip
            print(f"{network.name} at batch {batch} done", file=sys.stderr)
    document = {
        "environment": plain(environment.fingerprint()),
        "seconds": "processor" if arguments.busy else "elapsed",
        "peak_flops": peak.best,
        "rows": rows,
    }
    with atomic_write(arguments.json) as file:
        file.write(json.dumps(document, indent=1).encode())
    print(markdown(document))


def markdown(document: dict[str, Any]) -> str:
    """Images a second by engine, and how the fused rung compares with the best of the others."""
    about = document["environment"]
    names = list(dict.fromkeys(name for row in document["rows"] for name in row["engines"]))
    ours = [name for name in OURS if name in names]
    lines = [
        f"{about['cpu']}, {about['cores']} cores, measured peak "
        f"{document['peak_flops'] / 1e9:.0f} GFLOP/s, {about['date'][:10]}; "
        + ", ".join(f"{k} {v}" for k, v in about["libraries"].items() if k in names),
        "",
        "Images a second (medians); `of peak` is of `fused`. The last columns are times the best",
        "library, with the interval that holds the ratio of medians in 95 of 100 cases.",
        "",
        f"| network | batch | {' | '.join(names)} | of peak | {' | '.join(ours)} |",
        f"| --- | ---: | {' | '.join(['---:'] * (len(names) + 1 + len(ours)))} |",
    ]
    for row in document["rows"]:
        speeds = {n: row["batch"] / e["median_seconds"] for n, e in row["engines"].items()}
        share = speeds["fused"] * row["executed_flop"] / document["peak_flops"]
        cells = [f"{speeds[name]:,.0f}" if name in speeds else "-" for name in names]
        gains = [_gain(row["engines"], name) if name in speeds else "-" for name in ours]
        # The peak is of elapsed time, which others take a part of.
        cells += [f"{100 * share:.0f} %" if document["seconds"] == "elapsed" else "-", *gains]
        lines.append(f"| {row['network']} | {row['batch']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _gain(measured: dict[str, Any], name: str) -> str:
    """How many times as fast an engine is as the best library."""
    others = (each for each in measured if each not in OURS)
    best = min(others, key=lambda each: measured[each]["median_seconds"])
    found = ratio(*(Sample(tuple(measured[each]["samples_seconds"])) for each in (best, name)))
    known = f" ({found.interval.low:.2f} to {found.interval.high:.2f})"
    return f"{found.value:.2f}{known if found.interval.known else ''}"


if __name__ == "__main__":
    main()
