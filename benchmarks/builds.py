"""How long CUDA kernels take to build: with an empty store, and from it.

    python -m benchmarks.builds [--cores 4] [--kernels] [NETWORK ...] [--batches 1 64 1000]

Every network, those of `benchmarks.strangers` too, in each precision, as one kernel (`network`) and
layer by layer (`tensor`): planned, compiled on the cores that are given, loaded; each in a process
of its own, whose start and opening of the device do not count. Without a GPU all but the loading is
done, for sm_90. With `--kernels` every kernel is compiled alone, too: a machine with enough cores
takes as long as the longest.
`all-cnn` is Springenberg and others' All-CNN-C (2014), whose 96 and 192 channels make long kernels;
`mlp` is a perceptron of three layers.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest import mock

import numpy as np
from benchmarks.cpu import networks
from benchmarks.drawn import every_drawn
from benchmarks.strangers import strangers

from tilewright.execute import Program, launches
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import find
from tilewright.rungs.rung import Rung
from tilewright.runtime import cuda, nvrtc
from tilewright.runtime.device import CUDA
from tilewright.runtime.dialect import Limits, Source
from tilewright.runtime.gather import Gathering, gathered
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.truth.trials import random_parameters

SUBJECTS = (("network", "fp16"), ("network", "tf32"), ("network", "tf32x3"), ("network", "fp32"))
SUBJECTS += (("tensor", "fp16"), ("tensor", "tf32"), ("tensor", "tf32x3"))
H200 = Limits(1024, 48 * 1024, 64 * 1024, 140 * 10**9, 132)


def all_cnn() -> Network:
    convolutions = [
        *(Convolution(96, 3, padding=1), Convolution(96, 3, padding=1)),
        Convolution(96, 3, stride=2, padding=1),
        *(Convolution(192, 3, padding=1), Convolution(192, 3, padding=1)),
        Convolution(192, 3, stride=2, padding=1),
        *(Convolution(192, 3), Convolution(192, 1), Convolution(10, 1)),
    ]
    layers: list[Layer] = [each for layer in convolutions for each in (layer, ReLU())]
    return Network("all-cnn", Pixels((3, 32, 32)), (*layers, AveragePool(6), Flatten(), Softmax()))


MLP = Network("mlp", Pixels((1, 28, 28)), (
    Flatten(), FullyConnected(512), ReLU(), FullyConnected(512), ReLU(), FullyConnected(10),
    Softmax()))  # fmt: skip


class CompilesOnly(Gathering):
    """A GPU that is not here: kernels are compiled for it, and nothing else."""

    def __init__(self) -> None:
        super().__init__(H200, 90, reads=True)

    def compile_ahead(self, texts: dict[tuple[str, str], None]) -> object:
        return nvrtc.compile_ahead([(*text, "sm_90a") for text in texts])

    def compile(self, source: Source) -> object:
        nvrtc.compile_cubin(source.name, source.complete, "sm_90a")
        return super().compile(source)

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> object:
        nvrtc.compile_cubin(name, text, "sm_90a")
        return super().compile_text(name, text, threads, shared_bytes)


def every_network() -> dict[str, Network]:
    known = (*networks(), all_cnn(), MLP, *strangers(), *every_drawn())
    return {each.name: each for each in known}


def opened(network: str, name: str, precision: str) -> tuple[Network, Rung]:
    """A network with weights and a rung, for a GPU that is ready or one that is not here."""
    plain = every_network()[network]
    ready = plain.with_parameters(random_parameters(plain, np.random.default_rng(0)))
    rung = find(name).at(precision)
    if cuda.missing(CUDA) is not None:
        rung = replace(rung, open_runtime=lambda device, memory: CompilesOnly())
        mock.patch.object(cuda, "gpu", lambda index: REFERENCE).start()
    rung.open_runtime(CUDA, "resident")  # the device itself, and its libraries
    return ready, rung


def build(network: str, name: str, precision: str, batch: str) -> str:
    """Seconds in this process, which has done nothing like it before."""
    ready, rung = opened(network, name, precision)
    start = time.perf_counter()
    Program(ready, uniform(ready, rung, CUDA, int(batch), "resident"), {rung.name: rung})
    return f"{time.perf_counter() - start}"


def kernels(network: str, name: str, precision: str, batch: str) -> str:
    """What each kernel takes the compiler alone, and what it is: a line each."""
    ready, rung = opened(network, name, precision)
    plan = uniform(ready, rung, CUDA, int(batch), "resident")
    texts = gathered(
        CompilesOnly(),
        lambda runtime: list(launches(ready, plan, {rung.name: rung}, runtime, True)),
    )
    lines = []
    for kernel, text in texts:
        start = time.process_time()
        made = nvrtc.compile_cubin(kernel, text, "sm_90a")
        lines.append(f"    {time.process_time() - start:5.2f} CPU s, {made.registers} registers, "
                     f"{made.spilled_bytes} bytes spilled: {kernel}")  # fmt: skip
    return "\n".join(lines)


def apart(what: str, subject: list[str], cache: Path) -> str:
    """One of these in a process of its own, with a folder to keep things in."""
    command = [sys.executable, "-m", "benchmarks.builds", what, *subject]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout.rstrip()


def main() -> None:
    if sys.argv[1:2] in (["--build"], ["--compile"]):
        print((build if sys.argv[1] == "--build" else kernels)(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", default=list(every_network()))
    parser.add_argument("--cores", type=int, help="cores to compile on (all)")
    parser.add_argument("--batches", nargs="+", type=int, default=[1000], metavar="IMAGES")
    parser.add_argument("--kernels", action="store_true", help="each of them, too")
    given = parser.parse_args()
    if unknown := set(given.networks) - set(every_network()):
        parser.error(f"no network {', '.join(sorted(unknown))}")
    if given.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
    here = "a GPU" if cuda.missing(CUDA) is None else "no GPU: nothing is loaded"
    print(f"{len(os.sched_getaffinity(0))} cores, {here}")
    columns = f"{'network':18} {'images':>6} {'rung':7} {'precision':9}"
    print(f"{columns} {'cold, s':>8} {'warm, s':>8}")
    for network, images, (name, precision) in product(given.networks, given.batches, SUBJECTS):
        subject = [network, name, precision, str(images)]
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder) / "cache"
            cold = float(apart("--build", subject, cache))
            warm = min(float(apart("--build", subject, cache)) for _ in range(2))
            row = f"{network:18} {images:6} {name:7} {precision:9} {cold:8.2f} {warm:8.3f}"
            print(row, flush=True)
            if given.kernels:
                print(apart("--compile", subject, Path(folder) / "empty"), flush=True)


if __name__ == "__main__":
    main()
