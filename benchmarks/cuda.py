"""Whole networks on a CUDA GPU through the public call, against the libraries, in one run.

    python -m benchmarks.cuda --output FILE.json
    python -m benchmarks.cuda --output FILE.json --networks strangers --batches 1 16 64 100 1000

`tilewright.compile(network, device="cuda", precision=P, batch=N)` from bytes on the device to
probabilities there, as a CUDA graph (up to 1,000 images) and called plainly, in turns with PyTorch
at the same precision in the forms of `benchmarks.peers`; tf32x3, which is nearly float32, with
float32. torch.compile takes part from 1,000 images on, asked for `max-autotune` besides where
`--autotune` says so, and JAX where `--jax` does. The libraries get pixels that are normalised
already, in their own type.

Times are device events', of as many calls as a turn of 10 ms needs; every sample is kept, and the
best library's median over ours has its interval by the bootstrap over rounds. `largest_difference`
is to PyTorch in float64, of 64 images at most. `streamed` is ours from pinned host memory to
probabilities there, next to the copy of the pixels alone.

Each row is written as it comes. What FILE has already is not measured again: the same command goes
on where it was stopped. A row or a library that fails is named there and costs no other row.
Most of the time goes into compiling. `--build-only` compiles, ours and torch.compile's, and times
nothing: several such commands at once, a few networks each, fill the caches on disk before a run.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks import rows
from benchmarks.builds import every_network
from benchmarks.ceilings import ceilings, streamed
from benchmarks.cpu import networks
from benchmarks.guests import jax_network
from benchmarks.peers import (
    BY_HOST,
    COMPILED_FROM,
    GRAPHS_UP_TO,
    Call,
    compiled_forwards,
    forward_of,
    graphed,
    normalised,
    peers,
    set_tf32,
    timed,
    told,
)
from benchmarks.strangers import strangers

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.runtime import cuda
from tilewright.truth.trials import random_parameters

NETWORKS = (*(each.name for each in networks()), "all-cnn", "mlp")
STRANGERS = "strangers"  # a word for all of them
BATCHES = (1, 16, 64, 1000, 10_000)
LARGEST = {"cifar10": 50_000}
PRECISIONS = ("fp32", "tf32x3", "tf32", "fp16")  # those with the same peers one after the other
STREAMED = {"cifar10": 50_000, "ece408": 10_000}
COMPARED = 64  # images of a batch whose results are looked at
Document = dict[str, Any]


def measured(network: Network, precision: str, images: int, given: argparse.Namespace) -> rows.Row:
    import torch

    shape = (images, *network.input.shape)
    pixels = torch.randint(0, 256, shape, dtype=torch.uint8, device="cuda")
    set_tf32(False)
    values = pixels[:COMPARED].double() * network.input.scale + network.input.shift
    with torch.backends.cudnn.flags(benchmark=False):
        expected = forward_of(network, "fp32", False, torch.float64)(values)
    start = time.perf_counter()
    compiled = tilewright.compile(network, device="cuda", precision=precision, batch=images)
    built = time.perf_counter() - start
    out = torch.empty((images, *network.output_shape), device="cuda")
    calls: dict[str, Call] = {rows.OURS: lambda: compiled(pixels, out=out)}
    if images <= GRAPHS_UP_TO:
        calls[f"{rows.OURS}-graph"] = graphed(lambda x: compiled(x, out=out), pixels)
    difference = max(_difference(call, out, expected) for call in calls.values())
    set_tf32(precision == "tf32")
    others, failed = peers(network, precision, pixels, _compiled(network, images, given))
    if _with_jax(network, images, given):
        try:
            others[BY_HOST] = jax_network(network, precision)(
                normalised(network, pixels, precision)
            )
            others[BY_HOST]()
        except Exception as error:
            others.pop(BY_HOST, None)
            failed[BY_HOST] = told(error)
    row: rows.Row = {
        "network": network.name, "precision": precision, "batch": images, "flop": network.flops,
        "pixel_bytes": pixels[0].numel(), "build_seconds": built,
        "largest_difference": difference, "failed": failed,
        "engines": timed({**calls, **others}, given.repeats),
    }  # fmt: skip
    found = rows.times(row)
    row["times"] = {
        "over": rows.fastest(row, *rows.LIBRARIES), "value": found.value,
        "interval": found.interval.ends,
    }  # fmt: skip
    return row


def _compiled(network: Network, images: int, given: argparse.Namespace) -> list[str]:
    """The forms of torch.compile that take part."""
    if images < COMPILED_FROM:
        return []
    autotuned = f"{network.name}:{images}" in given.autotune
    return ["compile", "compile-autotune"] if autotuned else ["compile"]


def _with_jax(network: Network, images: int, given: argparse.Namespace) -> bool:
    if given.jax is None or images < COMPILED_FROM:
        return False
    return not given.jax or f"{network.name}:{images}" in given.jax


def _difference(call: Call, out: Any, expected: Any) -> float:
    """How far a call's results are from float64, at most."""
    import torch

    out.fill_(float("nan"))
    call()
    torch.cuda.synchronize()
    assert torch.isfinite(out).all(), "results that are not finite"
    return float((out[:COMPARED].double() - expected).abs().max())


def built(network: Network, precision: str, images: int, given: argparse.Namespace) -> None:
    """What a row needs, on disk."""
    import torch

    tilewright.compile(network, device="cuda", precision=precision, batch=images)
    set_tf32(precision == "tf32")
    pixels = torch.zeros((images, *network.input.shape), dtype=torch.uint8, device="cuda")
    x = normalised(network, pixels, precision).to(memory_format=torch.channels_last)
    names = _compiled(network, images, given)
    if names:
        for forward in compiled_forwards(network, precision, names).values():
            forward(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="FILE.json; FILE.md beside it")
    parser.add_argument(
        "--networks", nargs="+", default=NETWORKS, metavar="NAME",
        help=f"of benchmarks.builds; {STRANGERS}: all that nothing was fitted to",
    )  # fmt: skip
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS, choices=PRECISIONS)
    parser.add_argument(
        "--batches", nargs="+", type=int,
        help="images at a time (default: 1 to 10,000, and 50,000 of cifar10)",
    )  # fmt: skip
    parser.add_argument("--repeats", type=int, default=7, help="six or more, for an interval")
    parser.add_argument(
        "--autotune", nargs="+", default=[], metavar="NETWORK:IMAGES",
        help="where torch.compile tries kernels, too, for half a minute each time",
    )  # fmt: skip
    parser.add_argument(
        "--jax", nargs="*", metavar="NETWORK:IMAGES",
        help="where XLA's program takes part (all rows with so many images as torch.compile's)",
    )  # fmt: skip
    parser.add_argument("--build-only", action="store_true")
    given = parser.parse_args()
    if not (given.output or given.build_only):
        parser.error("--output is needed, or --build-only")
    wanted = _networks(given.networks)
    if unknown := [name for name in wanted if name not in every_network()]:
        parser.error(f"no network {', '.join(unknown)}")
    # A share of the GPU's memory that is taken at once would be missing elsewhere.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if given.build_only:
        build_all(wanted, given)
    else:
        measure_all(wanted, given)


def _networks(names: list[str]) -> list[str]:
    of_strangers = [each.name for each in strangers()]
    return [each for name in names for each in (of_strangers if name == STRANGERS else [name])]


def _with_weights(name: str) -> Network:
    bare = every_network()[name]
    return bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))


def _cases(name: str, given: argparse.Namespace) -> list[tuple[int, str]]:
    """Images and precisions of a network's rows."""
    usual = {*BATCHES, LARGEST.get(name, BATCHES[0])}
    return list(product(given.batches or sorted(usual), given.precisions))


def build_all(wanted: list[str], given: argparse.Namespace) -> None:
    import torch

    for name in wanted:
        network = _with_weights(name)
        for images, precision in _cases(name, given):
            try:
                with torch.inference_mode():
                    built(network, precision, images, given)
            except Exception as error:  # the row itself will say so
                _say(f"{name} {precision} {images}: {told(error)}")


def measure_all(wanted: list[str], given: argparse.Namespace) -> None:
    document = _opened(given.output)
    for name in wanted:
        network = _with_weights(name)
        for images, precision in _cases(name, given):
            _enter(document, "rows", network, precision, images, given)
        for precision in given.precisions if name in STREAMED else ():
            _enter(document, "streamed", network, precision, STREAMED[name], given)
        rows.write_markdown(document, given.output)


def _enter(
    document: Document,
    kind: str,
    network: Network,
    precision: str,
    images: int,
    given: argparse.Namespace,
) -> None:
    """Measure what is not there yet, and write it at once."""
    import torch

    case = {"network": network.name, "precision": precision, "batch": images}
    known = [*document[kind], *(each for each in document["failed"] if each["kind"] == kind)]
    if any(case.items() <= row.items() for row in known):
        return
    # What rows before have left to either library is missing to the other after some seventy.
    gc.collect()
    torch.cuda.empty_cache()
    if (cupy := sys.modules.get("cupy")) is not None:
        cupy.get_default_memory_pool().free_all_blocks()
    start = time.perf_counter()
    try:
        with torch.inference_mode():
            if kind == "rows":
                row = measured(network, precision, images, given)
            else:
                row = streamed(network, precision, images, given.repeats)
    except Exception as error:
        document["failed"].append({**case, "kind": kind, "failed": {"all": told(error)}})
        _write(document, given.output)
        _say(f"{network.name} {precision} {images} failed: {told(error)}")
        _start_again_if_broken()
        return
    document[kind].append(row)
    _write(document, given.output)
    if kind == "rows":
        _say(f"{rows.sentence(row)}; {time.perf_counter() - start:.0f} s in all")


def _opened(output: Path) -> Document:
    """What was measured before, on this GPU and with these versions, or nothing yet."""
    import torch

    about: Document = {
        "device": torch.cuda.get_device_name(),
        "versions": cuda.versions(),
        "libraries": {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()},
    }
    if output.exists():
        document: Document = json.loads(output.read_text())
        if any(document[name] != about[name] for name in about):
            raise SystemExit(f"{output} is of another GPU or other versions: name another file")
        return document
    facts = plain(environment.fingerprint())
    document = {"environment": facts, **about, "ceilings": ceilings()}
    return document | {"rows": [], "failed": [], "streamed": []}


def _start_again_if_broken() -> None:
    """An error of a kernel's leaves a process without its GPU: another one goes on from FILE."""
    import torch

    try:
        torch.cuda.synchronize()
    except Exception:
        command = [sys.executable, "-m", "benchmarks.cuda", *sys.argv[1:]]
        _say("the GPU is lost to this process; starting again")
        os.execv(sys.executable, command)


def _write(document: Document, output: Path) -> None:
    """A row a line: so it is quickly written, and read by others than programs."""
    text = json.dumps(document).replace('{"network": ', '\n{"network": ')
    with atomic_write(output) as file:
        file.write(f"{text}\n".encode())


def _say(what: str) -> None:
    print(what, flush=True)


if __name__ == "__main__":
    main()
