"""Few images on a CUDA GPU through the public call, against PyTorch; both as CUDA graphs.

Five networks, All-CNN among them, at 1, 4, 16 and 64 images that lie on the device, or others if
asked for (`mlp` is a perceptron of three layers; `benchmarks.strangers` has ten more), in fp32,
fp16 and TF32, or others (tf32x3, whose peer is PyTorch in float32):
`tilewright.compile(network, device="cuda", batch=N)` from bytes to probabilities, and PyTorch with
cuDNN's algorithms chosen by trial, its channels first or last, from pixels that are normalised
already. Medians of turns, by device events. PyTorch counts as it is fastest: as a graph or not, of
more than 2,500 images whole or in pieces. `called` is ours without a graph, one call after the
other. The largest difference is to PyTorch in float64, of 64 images at most.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.builds import all_cnn
from benchmarks.cpu import networks
from benchmarks.cuda import forward_of, graphed, peers, set_tf32, timed
from benchmarks.strangers import strangers

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.model.layers import Flatten, FullyConnected, Pixels, ReLU, Softmax
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.truth.trials import random_parameters

NETWORKS = ("ece408", "cifar64", "mnist3x3", "all-cnn", "cifar10")
PRECISIONS = ("fp32", "fp16", "tf32")
BATCHES = (1, 4, 16, 64)
COMPARED = 64  # images of a batch whose results are looked at
MLP = Network("mlp", Pixels((1, 28, 28)), (
    Flatten(), FullyConnected(512), ReLU(), FullyConnected(512), ReLU(), FullyConnected(10),
    Softmax()))  # fmt: skip
HEAD = "| network | images | ours | called | eager | channels last | times the best | difference |"
RULE = "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"


def measured(network: Network, precision: str, images: int, repeats: int) -> dict[str, Any]:
    import torch

    pixels = torch.randint(0, 256, (images, *network.input.shape), device="cuda")
    pixels = pixels.to(torch.uint8)
    set_tf32(False)
    values = pixels[:COMPARED].double() * network.input.scale + network.input.shift
    with torch.backends.cudnn.flags(benchmark=False):
        expected = forward_of(network, "fp32", False, torch.float64)(values)
    start = time.perf_counter()
    compiled = tilewright.compile(network, device="cuda", precision=precision, batch=images)
    built = time.perf_counter() - start
    out = torch.full((images, *network.output_shape), float("nan"), device="cuda")
    ours = graphed(lambda x: compiled(x, out=out), pixels)
    ours()
    torch.cuda.synchronize()
    assert torch.isfinite(out).all(), (network.name, precision, images)
    difference = float((out[:COMPARED].double() - expected).abs().max())
    set_tf32(precision == "tf32")
    others = peers(network, precision, pixels, images, compiled=False)
    found = timed({"network": ours, "called": lambda: compiled(pixels, out=out)} | others, repeats)
    return {
        "network": network.name, "precision": precision, "images": images,
        "build_seconds": built, "largest_difference": difference,
        "microseconds": {
            name: 1e6 * min(each["median_seconds"] for form, each in found.items()
                            if form in (name, f"{name}-graph", f"{name}-pieces"))
            for name in ("network", "called", "eager", "channels-last")
        },
        "samples_seconds": {name: each["samples_seconds"] for name, each in found.items()},
    }  # fmt: skip


def table(document: dict[str, Any]) -> str:
    rows, about = document["rows"], document["environment"]
    head = f"{document['device']}, torch {document['torch']}, {about['date'][:10]}."
    lines = [head, "Times of a batch in µs, medians.", ""]
    for precision in dict.fromkeys(row["precision"] for row in rows):
        lines += [f"### {precision}", "", HEAD, RULE]
        for row in rows:
            if row["precision"] == precision:
                us = row["microseconds"]
                best = min(us["eager"], us["channels-last"]) / us["network"]
                times = " | ".join(
                    f"{us[name]:.1f}" for name in ("network", "called", "eager", "channels-last")
                )
                lines.append(
                    f"| {row['network']} | {row['images']} | {times} | {best:.2f} | "
                    f"{row['largest_difference']:.0e} |"
                )
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="FILE.json; FILE.md beside it")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--precisions", nargs="*", default=PRECISIONS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    import torch

    known = {each.name: each for each in (*networks(), all_cnn(), MLP, *strangers())}
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()), "device": torch.cuda.get_device_name(),
        "torch": torch.__version__, "rows": [],
    }  # fmt: skip
    for name in given.networks:
        bare = known[name]
        network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
        for precision in given.precisions:
            for images in given.batches:
                with torch.inference_mode():
                    row = measured(network, precision, images, given.repeats)
                document["rows"].append(row)
                us = row["microseconds"]
                print(f"{name} {precision} {images}: {us['network']:.1f} µs, PyTorch "
                      f"{min(us['eager'], us['channels-last']) / us['network']:.2f} times as long; "
                      f"built in {row['build_seconds']:.1f} s", flush=True)  # fmt: skip
                with atomic_write(given.output) as file:
                    file.write((json.dumps(document, indent=1) + "\n").encode())
    with atomic_write(given.output.with_suffix(".md")) as file:
        file.write(table(document).encode())


if __name__ == "__main__":
    main()
