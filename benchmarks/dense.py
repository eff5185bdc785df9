"""Fully connected layers on a CUDA GPU: a perceptron against PyTorch, single layers against cuBLAS.

- A perceptron, 784-512-512-10: `tilewright.compile(network, device="cuda", precision=P)` from bytes
  to probabilities, against PyTorch's `linear`, `relu` and `softmax` from pixels that are normalised
  already.
- One layer with its activation, from panels to panels, as it is launched between two others,
  against PyTorch's `linear` (cuBLAS) without one: 784, 512 and 3,136 features, 512 outputs.

Both as CUDA graphs of ten calls, in turns; times are device events'. The ratio of medians has its
interval by the bootstrap over rounds; every sample is kept. The difference is to float64, as a
share of its norm.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.builds import MLP
from benchmarks.peers import forward_of, graphed, set_tf32, timed, types

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.panels import CHUNK, PANEL, PIECE, Panels, in_whole_panels
from tilewright.fuse.cuda.run import kernel_text
from tilewright.measure.samples import Sample, ratio
from tilewright.model.layers import FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA
from tilewright.truth.trials import random_parameters

BATCHES = (1, 4, 16, 64, 128, 256, 512, 1000, 2000, 4000, 10_000)
PRECISIONS = ("fp16", "tf32", "fp32")
MANY = 256  # images, from which on single layers are timed
FEATURES = (784, 512, 3136)
OUTPUTS = 512
CALLS = 10  # of a graph


def tenfold(call: Callable[[], Any]) -> Callable[[], Any]:
    """A graph of ten calls."""

    def calls(_: None) -> None:
        for _ in range(CALLS):
            call()

    return graphed(calls, None)


def measured(ours: Callable[[], Any], torch: Callable[[], Any], repeats: int) -> dict[str, Any]:
    found = timed({"ours": tenfold(ours), "torch": tenfold(torch)}, repeats)
    seconds = {name: [each / CALLS for each in of["samples_seconds"]] for name, of in found.items()}
    times = ratio(*(Sample(tuple(seconds[name])) for name in ("torch", "ours")))
    return {
        "median_seconds": {name: of["median_seconds"] / CALLS for name, of in found.items()},
        "times": times.value, "times_interval": times.interval.ends,
        "samples_seconds": seconds,
    }  # fmt: skip


@cache
def compiled_perceptron(precision: str) -> tuple[Network, Callable[..., Any]]:
    network = MLP.with_parameters(random_parameters(MLP, np.random.default_rng(0)))
    return network, tilewright.compile(network, device="cuda", precision=precision)


def perceptron(precision: str, images: int, repeats: int) -> dict[str, Any]:
    import torch

    network, compiled = compiled_perceptron(precision)
    pixels = torch.randint(0, 256, (images, *network.input.shape), device="cuda")
    pixels = pixels.to(torch.uint8)
    values = pixels.double() * network.input.scale + network.input.shift
    expected = forward_of(network, precision, False, torch.float64)(values)
    out = torch.full((images, *network.output_shape), float("nan"), device="cuda")
    set_tf32(precision == "tf32")
    forward, ready = forward_of(network, precision, False), values.to(types(precision))
    row = measured(lambda: compiled(pixels, out=out), lambda: forward(ready), repeats)
    difference = float((out.double() - expected).norm() / expected.norm())
    return {"what": "perceptron", "precision": precision, "images": images,
            "difference": difference, **row}  # fmt: skip


def layer_between(precision: str, features: int, outputs: int) -> tuple[Network, Panels]:
    """A layer that takes panels and gives panels, and the network that it is one of."""
    layers = FullyConnected(features), ReLU(), FullyConnected(outputs), ReLU(), FullyConnected(20)
    bare = Network("between", Pixels((64, 1, 1)), layers)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    plan = cut(network.stages, ARITHMETICS[precision], 90)[1]
    assert isinstance(plan, Panels)
    return network, plan


def layer(
    runtime: CudaRuntime, precision: str, features: int, images: int, repeats: int
) -> dict[str, Any]:
    import cupy
    import torch

    network, plan = layer_between(precision, features, OUTPUTS)
    (how,) = plan.how(images, runtime.limits.processors, True)
    text = kernel_text(plan, "layer", network.input, "panels", how)
    kernel = runtime.compile_text("layer", text, plan.threads_of(how), plan.bytes_of(how))
    values = torch.randn((images, features), device="cuda")
    x, size = panels_of(plan, values), in_whole_panels(images) * plan.result_words
    out = torch.full((size,), -1, dtype=torch.int32, device="cuda")
    weights = runtime.upload(plan.parameters(network.parameters))
    given = cupy.from_dlpack(x), cupy.from_dlpack(out), weights, images

    def ours() -> None:
        runtime.kernels = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
        runtime.enqueue(kernel, plan.grid(how, images), given, ())

    name = plan.layer.names[0]
    weight, bias = (torch.from_numpy(network.parameters[f"{name}.{each}"].copy()).cuda()
                    for each in ("weight", "bias"))  # fmt: skip
    expected = torch.relu(torch.nn.functional.linear(*(t.double() for t in (values, weight, bias))))
    set_tf32(precision == "tf32")
    operands = [each.to(types(precision)) for each in (values, weight, bias)]
    row = measured(ours, lambda: torch.nn.functional.linear(*operands), repeats)
    difference = float((values_of(plan, out, images) - expected).norm() / expected.norm())
    return {"what": "layer", "precision": precision, "features": features, "outputs": OUTPUTS,
            "images": images, "how": str(how), "difference": difference, **row}  # fmt: skip


def panels_of(plan: Panels, rows: Any) -> Any:
    """Rows of features on the device, as a layer takes them; floats of TF32 are rounded to it."""
    import torch

    kind = torch.float16 if plan.arithmetic.per_word == 2 else torch.float32
    size = -(-len(rows) // PANEL) * PANEL, plan.words * plan.arithmetic.per_word
    full = torch.zeros(size, dtype=kind, device=rows.device)
    full[: len(rows), : rows.shape[1]] = rows.to(kind)
    words = full.view(torch.int32)
    if plan.arithmetic.tensor and plan.arithmetic.per_word == 1:
        words = words + 0x1000 & ~0x1FFF
    split = words.reshape(-1, PANEL, plan.own_pieces // CHUNK, CHUNK, PIECE).permute(0, 2, 1, 3, 4)
    return turned(split).contiguous()


def turned(chunks: Any) -> Any:
    """Pieces of rows (the last axes: row, piece, word) in the places that panels have for them, or
    back."""
    import torch

    rows, pieces = (torch.arange(size, device=chunks.device) for size in (PANEL, CHUNK))
    places = (pieces ^ rows[:, None] % CHUNK)[..., None].expand_as(chunks)
    return chunks.gather(3, places)


def values_of(plan: Panels, words: Any, images: int) -> Any:
    """The outputs of so many images, from panels."""
    import torch

    kind = torch.float16 if plan.arithmetic.per_word == 2 else torch.float32
    split = turned(words.reshape(-1, plan.pieces(plan.filters) // CHUNK, PANEL, CHUNK, PIECE))
    rows = split.permute(0, 2, 1, 3, 4).contiguous().reshape(in_whole_panels(images), -1)
    return rows.view(kind)[:images, : plan.filters].double()


def table(document: dict[str, Any]) -> str:
    date = document["environment"]["date"][:10]
    lines = [
        f"{document['device']}, PyTorch {document['torch']}, {date}. µs of a call, medians; how "
        "many times as long PyTorch takes, with the interval that holds the ratio of medians in 95 "
        "of 100 cases.",
    ]
    heads = [f"{p}{word}" for p in PRECISIONS for word in (", µs", ", PyTorch µs", ", times")]
    for title, rows in sections(document["rows"]).items():
        lines += ["", f"### {title}", "", f"| images | {' | '.join(heads)} |",
                  "| ---: " * (1 + len(heads)) + "|"]  # fmt: skip
        for images in sorted({row["images"] for row in rows}):
            of = {row["precision"]: row for row in rows if row["images"] == images}
            cells = " | ".join(_cells(of[p]) if p in of else "| |" for p in PRECISIONS)
            lines.append(f"| {images:,} | {cells} |")
    return "\n".join(lines) + "\n"


def sections(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows of a table each, by its title."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        title = "A perceptron, 784-512-512-10"
        if row["what"] == "layer":
            title = f"One layer, {row['features']:,} features, {row['outputs']} outputs"
        found.setdefault(title, []).append(row)
    return found


def _cells(row: dict[str, Any]) -> str:
    ours, torch = (1e6 * row["median_seconds"][name] for name in ("ours", "torch"))
    low, high = row["times_interval"] or (float("nan"), float("nan"))
    return f"{ours:.1f} | {torch:.1f} | {row['times']:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="FILE.json; FILE.md beside it")
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--precisions", nargs="*", default=PRECISIONS)
    parser.add_argument("--features", nargs="*", type=int, default=FEATURES)
    parser.add_argument("--repeats", type=int, default=15)
    given = parser.parse_args()
    import torch

    runtime = CudaRuntime(CUDA)
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()), "device": torch.cuda.get_device_name(),
        "torch": torch.__version__, "calls_a_graph": CALLS, "rows": [],
    }  # fmt: skip

    def enter(row: dict[str, Any]) -> None:
        document["rows"].append(row)
        named = {k: v for k, v in row.items() if k != "samples_seconds"}
        print(json.dumps(named), flush=True)
        with atomic_write(given.output) as file:
            file.write(json.dumps(document).encode())
        with atomic_write(given.output.with_suffix(".md")) as file:
            file.write(table(document).encode())

    with torch.inference_mode():
        for precision in given.precisions:
            for images in given.batches:
                enter(perceptron(precision, images, given.repeats))
        for features in given.features:
            for precision in given.precisions:
                for images in given.batches:
                    if images >= MANY:
                        enter(layer(runtime, precision, features, images, given.repeats))


if __name__ == "__main__":
    main()
