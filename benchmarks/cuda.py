"""The rung `network` against the libraries on a CUDA GPU, at the same precision, in one run.

Six networks, batches from 1 to 50,000 images that lie on the device, in fp16, TF32 and fp32:

- `network`: the whole network as one kernel, from bytes to probabilities.
- `eager`, `channels-last`: PyTorch with cuDNN's algorithms chosen by trial.
- `compile`: torch.compile, max-autotune, channels last; at the batches asked for.
- `eager-graph`, `channels-last-graph`, `compile-graph`: the same as CUDA graphs (smaller batches).
- `jax`: XLA's program; from 1,000 images on.

The libraries get pixels that are normalised already, in their own type; ours reads bytes and
normalises them. Batches of 10,000 and more go through each library whole and in pieces; the faster
counts. All take turns; times are device events', medians of rounds, for as many calls as a turn
needs. JAX has streams of its own and is timed by the host's clock. `streamed` is ours from pinned
host memory to probabilities there, next to the copy of the pixels alone.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Python looks for modules beside a script first, where this file would pass for the package
    # `cuda`; and all benchmarks are found from the folder above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

import numpy as np
from benchmarks.cpu import networks
from benchmarks.guests import jax_network

from tilewright import environment
from tilewright.execute import program_of
from tilewright.files import atomic_write
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import choose as choose_cut
from tilewright.fuse.cuda.cut import with_few
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.measure.peak import measured_peak
from tilewright.measure.samples import Sample
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.rungs import choose
from tilewright.rungs.vendor.torch import layer_function
from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA
from tilewright.truth.trials import random_parameters

BATCHES = (1, 16, 256, 1000, 10_000)
LARGEST = {"cifar10": 50_000}
PRECISIONS = ("fp16", "tf32", "fp32")
PIECE = 2_500
GRAPHS_UP_TO = 1000
JAX_FROM = 1000  # its calls take longer than smaller batches
SHORTEST_TURN = 0.01
Call = Callable[[], Any]


def types(precision: str) -> Any:
    import torch

    return torch.float16 if precision == "fp16" else torch.float32


def set_tf32(allowed: bool) -> None:
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True


def forward_of(
    network: Network, precision: str, channels_last: bool, kind: Any = None
) -> Callable[[Any], Any]:
    """The network in PyTorch's functions, weights on the device in its precision, or of a type."""
    import torch

    functions = []
    for stage in network.stages[1:]:
        tensors = []
        for name in stage.parameter_shapes:
            tensor = torch.from_numpy(network.parameters[name].copy()).cuda()
            tensor = tensor.to(kind or types(precision))
            if channels_last and tensor.ndim == 4:
                tensor = tensor.to(memory_format=torch.channels_last)
            tensors.append(tensor)
        functions.append(layer_function(stage, *tensors))

    def forward(x: Any) -> Any:
        given = [x]
        for function, taken in zip(functions, network.sources, strict=True):
            given.append(function(*(given[each] for each in taken)))
        return given[-1]

    return forward


def graphed(forward: Callable[[Any], Any], x: Any) -> Call:
    """A CUDA graph of one call."""
    import torch

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            forward(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # JAX has threads of its own; what they do on the device would spoil a capture otherwise.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        forward(x)
    return graph.replay


def in_pieces(forward: Callable[[Any], Any], x: Any) -> Call:
    import torch

    out = torch.empty((len(x), forward(x[:1]).shape[1]), dtype=x.dtype, device="cuda")

    def call() -> None:
        for first in range(0, len(x), PIECE):
            out[first : first + PIECE] = forward(x[first : first + PIECE])

    return call


def normalised(network: Network, pixels: Any, precision: str) -> Any:
    """What the libraries are given."""
    return (pixels.float() * network.input.scale + network.input.shift).to(types(precision))


def peers(
    network: Network, precision: str, pixels: Any, batch: int, compiled: bool
) -> dict[str, Call]:
    """PyTorch in all its forms, ready to be called on this batch."""
    import torch

    plain = normalised(network, pixels, precision)
    last = plain.to(memory_format=torch.channels_last)
    kinds: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "eager": (forward_of(network, precision, False), plain),
        "channels-last": (forward_of(network, precision, True), last),
    }
    if compiled:
        torch.compiler.reset()
        kinds["compile"] = (
            torch.compile(
                forward_of(network, precision, True),
                mode="max-autotune-no-cudagraphs",
                dynamic=False,
            ),
            last,
        )
    calls: dict[str, Call] = {}
    for name, (forward, x) in kinds.items():
        forward(x)
        calls[name] = lambda forward=forward, x=x: forward(x)
        if batch <= GRAPHS_UP_TO:
            calls[f"{name}-graph"] = graphed(forward, x)
        if batch > PIECE and name != "compile":  # which would compile once more
            calls[f"{name}-pieces"] = in_pieces(forward, x)
    return calls


def ours(
    runtime: CudaRuntime, network: Network, fused: FusedNetwork, pixels: Any
) -> tuple[dict[str, Call], Any]:
    """The rung, called plainly and, for small batches, as a CUDA graph."""
    import cupy

    x = cupy.from_dlpack(pixels)
    out = cupy.full((len(x), *network.output_shape), cupy.nan, cupy.float32)
    fused(x, out)
    calls: dict[str, Call] = {"network": lambda: fused(x, out)}
    if len(x) <= GRAPHS_UP_TO:
        stream = cupy.cuda.Stream(non_blocking=True)
        runtime.kernels, usual = stream, runtime.kernels
        with stream:
            stream.begin_capture()
            fused(x, out)
            graph = stream.end_capture()
        runtime.kernels = usual
        calls["network-graph"] = lambda: graph.launch(stream=usual)
    return calls, out


def timed(calls: dict[str, Call], repeats: int) -> dict[str, dict[str, Any]]:
    """Seconds of a call, each in turns with the others."""
    import torch

    counts = {}
    for name, call in calls.items():
        call()
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        torch.cuda.synchronize()
        counts[name] = max(1, min(200, int(SHORTEST_TURN / (time.perf_counter() - start))))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    shuffler = random.Random(1)
    for _ in range(repeats):
        for name in shuffler.sample(list(calls), len(calls)):
            call, count = calls[name], counts[name]
            call()
            torch.cuda.synchronize()
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start = time.perf_counter()
            before.record()
            for _ in range(count):
                call()
            after.record()
            torch.cuda.synchronize()
            spent = time.perf_counter() - start
            spent = spent if name == "jax" else 1e-3 * before.elapsed_time(after)
            seconds[name].append(spent / count)
    found = {}
    for name, values in seconds.items():
        sample = Sample(tuple(values))
        found[name] = {
            "median_seconds": sample.median,
            "best_seconds": sample.best,
            "interval_seconds": sample.interval.ends,
            "calls_a_turn": counts[name],
            "samples_seconds": values,
        }
    return found


def checked(network: Network, precision: str, pixels: Any, out: Any) -> float:
    """The share of images on which ours and float32 by PyTorch predict the same."""
    import torch

    set_tf32(False)
    x = pixels.float() * network.input.scale + network.input.shift
    expected = in_full(forward_of(network, "fp32", False), x)
    set_tf32(precision != "fp32")
    got = torch.from_dlpack(out)
    assert torch.isfinite(got).all(), (network.name, precision)
    return float((got.argmax(1) == expected.argmax(1)).float().mean())


def in_full(forward: Callable[[Any], Any], x: Any) -> Any:
    import torch

    with torch.inference_mode():
        return torch.cat([forward(x[first : first + PIECE]) for first in range(0, len(x), PIECE)])


def ceilings() -> dict[str, float]:
    """Measured rates: matrix products in each precision, device memory read and written."""
    import torch

    found = {"fp32_plain": measured_peak(CUDA) or 0.0}
    for precision in PRECISIONS:
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
    batch = 5_000
    program = program_of(network, rung, CUDA, batch, "streamed")
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
        "network": network.name, "precision": precision, "images": images, "batch": batch,
        "bytes": int(pixels.nbytes),
        **{f"{name}_seconds": float(np.median(values)) for name, values in samples.items()},
        "samples_seconds": samples,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="FILE.json; FILE.md beside it")
    parser.add_argument("--networks", nargs="*", help="those of the six (default: all)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--batches", type=int, nargs="*", default=BATCHES)
    parser.add_argument(
        "--compile", nargs="*", default=[], metavar="NETWORK:BATCH",
        help="where torch.compile takes part: for each batch it tries kernels for half a minute",
    )  # fmt: skip
    given = parser.parse_args()
    import torch

    runtime = CudaRuntime(CUDA)
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()),
        "device": runtime.describe(),
        "versions": cuda.versions(),
        "libraries": {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()},
        "ceilings": ceilings(),
        "rows": [],
        "streamed": [],
    }
    for bare in networks():
        if given.networks and bare.name not in given.networks:
            continue
        network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
        for precision in PRECISIONS:
            arithmetic, capability = ARITHMETICS[precision], runtime.capability
            choice = choose_cut(network.stages, arithmetic, capability)
            choice = with_few(choice, network.stages, arithmetic, capability)
            fused = FusedNetwork(
                runtime, "network", precision, network.stages, network.parameters, choice
            )
            for batch in sorted({*given.batches, LARGEST.get(bare.name, 1)}):
                gc.collect()
                torch.cuda.empty_cache()
                set_tf32(precision != "fp32")
                pixels = torch.randint(0, 256, (batch, *network.input.shape), device="cuda")
                pixels = pixels.to(torch.uint8)
                start = time.perf_counter()
                with torch.inference_mode():
                    calls, out = ours(runtime, network, fused, pixels)
                    same = checked(network, precision, pixels, out)
                    compiled = f"{network.name}:{batch}" in given.compile
                    others = peers(network, precision, pixels, batch, compiled)
                    if batch >= JAX_FROM:
                        others["jax"] = jax_network(network, precision)(
                            normalised(network, pixels, precision)
                        )
                    results = timed({**calls, **others}, given.repeats)
                document["rows"].append(
                    {"network": network.name, "precision": precision, "batch": batch,
                     "flop": network.flops, "pixel_bytes": pixels[0].numel(),
                     "kernels": len(fused.plans), "same_predictions": same, "engines": results}
                )  # fmt: skip
                best = min(others, key=lambda name: results[name]["median_seconds"])
                mine = min(results[name]["median_seconds"] for name in calls)
                print(
                    f"{network.name} {precision} {batch}: {1e3 * mine:.4f} ms, {best} "
                    f"{results[best]['median_seconds'] / mine:.2f} times as long, same predictions "
                    f"{same:.5f} ({time.perf_counter() - start:.0f} s)",
                    file=sys.stderr,
                )
                del calls, out, others, pixels
            images = LARGEST.get(bare.name, 10_000)
            document["streamed"].append(streamed(network, precision, images, given.repeats))
            write(document, given.output)
    print(markdown(document))


def write(document: dict[str, Any], output: Path) -> None:
    with atomic_write(output) as file:
        file.write(json.dumps(document, indent=1).encode())
    with atomic_write(output.with_suffix(".md")) as file:
        file.write(markdown(document).encode())


def markdown(document: dict[str, Any]) -> str:
    """A table a precision: ours, every library's best form, the factor, and the floor."""
    about, rates = document["environment"], document["ceilings"]
    libraries = ", ".join(f"{name} {value}" for name, value in document["libraries"].items())
    lines = [
        f"{document['device']}, {document['versions']}, {libraries}, {about['date'][:10]}.",
        "",
        f"Measured: {rates['fp16_product'] / 1e12:.0f} TFLOP/s in fp16 products, "
        f"{rates['tf32_product'] / 1e12:.0f} in TF32, {rates['fp32_product'] / 1e12:.1f} in fp32 "
        f"({rates['fp32_plain'] / 1e12:.1f} in multiply-adds alone), "
        f"{rates['bytes'] / 1e12:.2f} TB/s.",
        "",
        "Times of a batch in ms, medians, pixels on the device. `floor` is the longer of the "
        "FLOP at the measured rate and the pixels at the measured bandwidth; `share` is the floor "
        "over our time.",
    ]  # fmt: skip
    for precision in PRECISIONS:
        rows = [row for row in document["rows"] if row["precision"] == precision]
        names = ["eager", "channels-last", "compile", "jax"]
        lines += [
            "", f"### {precision}", "",
            f"| network | batch | network | {' | '.join(names)} | times the best | floor | share |",
            f"| --- | ---: | ---: | {' | '.join(['---:'] * len(names))} | ---: | ---: | ---: |",
        ]  # fmt: skip
        for row in rows:
            best = {name: best_form(row["engines"], name) for name in ("network", *names)}
            mine = best["network"]
            other = min(value for name, value in best.items() if value and name != "network")
            rate = rates["fp32_plain" if precision == "fp32" else f"{precision}_product"]
            floor = max(
                row["flop"] * row["batch"] / rate,
                row["pixel_bytes"] * row["batch"] / rates["bytes"],
            )
            cells = " | ".join(cell(best[name]) for name in names)
            lines.append(
                f"| {row['network']} | {row['batch']:,} | {cell(mine)} | {cells} | "
                f"{other / mine:.2f} | {cell(floor)} | {100 * floor / mine:.0f} % |"
            )
    lines += [
        "", "### From host memory to probabilities there (`streamed`)", "",
        "| network | precision | images | streamed ms | pinned copy alone ms | times the copy |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for row in document["streamed"]:
        streamed, copy = row["streamed_seconds"], row["copy_seconds"]
        lines.append(
            f"| {row['network']} | {row['precision']} | {row['images']:,} | {cell(streamed)} | "
            f"{cell(copy)} | {streamed / copy:.2f} |"
        )
    return "\n".join(lines) + "\n"


def best_form(engines: dict[str, Any], name: str) -> float | None:
    """Of a library called plainly, as a graph, or in pieces."""
    forms = [engines[key]["median_seconds"] for key in engines if key.split("-graph")[0]
             .split("-pieces")[0] == name]  # fmt: skip
    return min(forms, default=None)


def cell(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.3f}"


if __name__ == "__main__":
    main()
