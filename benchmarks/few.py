"""Few images on a CUDA GPU through the public call, against PyTorch; both as CUDA graphs.

Five networks, All-CNN among them, at 1, 4, 16 and 64 images that lie on the device, or others if
asked for (`mlp` is a perceptron of three layers), in fp32, fp16 and TF32:
`tilewright.compile(network, device="cuda", batch=N)` from bytes to probabilities, and PyTorch with
cuDNN's algorithms chosen by trial, its channels first or last, from pixels that are normalised
already. Medians of turns, by device events; PyTorch has no graph of more than 1,000 images.
`called` is ours without a graph, one call after the other. The largest difference is to PyTorch in
float64.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.builds import all_cnn
from benchmarks.cpu import networks
from benchmarks.cuda import forward_of, graphed, peers, set_tf32, timed

import tilewright
from tilewright.files import atomic_write
from tilewright.model.layers import Flatten, FullyConnected, Pixels, ReLU, Softmax
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters

NETWORKS = ("ece408", "cifar64", "mnist3x3", "all-cnn", "cifar10")
PRECISIONS = ("fp32", "fp16", "tf32")
BATCHES = (1, 4, 16, 64)
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
    values = pixels.double() * network.input.scale + network.input.shift
    expected = forward_of(network, "fp32", False, torch.float64)(values)
    compiled = tilewright.compile(network, device="cuda", precision=precision, batch=images)
    out = torch.full((images, *network.output_shape), float("nan"), device="cuda")
    ours = graphed(lambda x: compiled(x, out=out), pixels)
    ours()
    torch.cuda.synchronize()
    difference = float((out.double() - expected).abs().max())
    set_tf32(precision == "tf32")
    others = peers(network, precision, pixels, images, compiled=False)
    calls = {"network": ours, "called": lambda: compiled(pixels, out=out)}
    calls |= {
        name: others.get(f"{name}-graph", others[name]) for name in ("eager", "channels-last")
    }
    found = timed(calls, repeats)
    return {
        "network": network.name, "precision": precision, "images": images,
        "microseconds": {name: 1e6 * each["median_seconds"] for name, each in found.items()},
        "largest_difference": difference,
    }  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    lines = []
    for precision in PRECISIONS:
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
    return "\n".join(["Times of a batch in µs, medians.", "", *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="FILE.json; FILE.md beside it")
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--repeats", type=int, default=7)
    given = parser.parse_args()
    import torch

    known = {each.name: each for each in (*networks(), all_cnn(), MLP)}
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "rows": [],
    }  # fmt: skip
    for name in given.networks:
        bare = known[name]
        network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
        for precision in PRECISIONS:
            for images in given.batches:
                with torch.inference_mode():
                    row = measured(network, precision, images, given.repeats)
                document["rows"].append(row)
                print(row, flush=True)
                with atomic_write(given.output) as file:
                    file.write((json.dumps(document, indent=1) + "\n").encode())
    with atomic_write(given.output.with_suffix(".md")) as file:
        file.write(table(document["rows"]).encode())


if __name__ == "__main__":
    main()
