"""How long CUDA kernels take to build: with an empty store, and from it.

    python -m benchmarks.builds [--cores 4] [NETWORK ...]

Every network in each precision, as one kernel (`network`) and layer by layer (`tensor`): planned,
compiled on the cores that are given, loaded; each in a process of its own, whose start and opening
of the device do not count. Without a GPU all but the loading is done, for sm_90.
`all-cnn` is Springenberg and others' All-CNN-C (2014), whose 96 and 192 channels make long kernels.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.cpu import networks

from tilewright.execute import Program
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    Layer,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs import find
from tilewright.runtime import cuda, nvrtc
from tilewright.runtime.device import CUDA
from tilewright.runtime.dialect import Limits, Source
from tilewright.runtime.gather import Gathering
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


class CompilesOnly(Gathering):
    """A GPU that is not here: kernels are compiled for it, and nothing else."""

    def __init__(self) -> None:
        super().__init__(H200, 90)

    def compile_ahead(self, texts: dict[tuple[str, str], None]) -> object:
        return nvrtc.compile_ahead([(*text, "sm_90a") for text in texts])

    def compile(self, source: Source) -> object:
        nvrtc.compile_cubin(source.name, source.complete, "sm_90a")
        return super().compile(source)

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> object:
        nvrtc.compile_cubin(name, text, "sm_90a")
        return super().compile_text(name, text, threads, shared_bytes)


def build(network: str, name: str, precision: str) -> float:
    """Seconds in this process, which has done nothing like it before."""
    plain = next(each for each in (*networks(), all_cnn()) if each.name == network)
    ready = plain.with_parameters(random_parameters(plain, np.random.default_rng(0)))
    rung = find(name).at(precision)
    if cuda.missing(CUDA) is not None:
        rung = replace(rung, open_runtime=lambda device, memory: CompilesOnly())
    plan = uniform(ready, rung, CUDA, 1000)
    rung.open_runtime(CUDA, plan.memory)  # the device itself, and its libraries
    start = time.perf_counter()
    Program(ready, plan, {rung.name: rung})
    return time.perf_counter() - start


def measured(subject: list[str], cache: Path) -> float:
    """The same in a process of its own, with a folder to keep things in."""
    command = [sys.executable, "-m", "benchmarks.builds", "--one", *subject]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--cores", type=int, help="cores to compile on (all)")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(build(*arguments.one))
        return
    if arguments.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.cores])
    here = "a GPU" if cuda.missing(CUDA) is None else "no GPU: nothing is loaded"
    print(f"{len(os.sched_getaffinity(0))} cores, {here}")
    print(f"{'network':10} {'rung':7} {'precision':9} {'cold, s':>8} {'warm, s':>8}")
    for network in (*networks(), all_cnn()):
        if arguments.networks and network.name not in arguments.networks:
            continue
        for name, precision in SUBJECTS:
            with tempfile.TemporaryDirectory() as folder:
                subject, cache = [network.name, name, precision], Path(folder) / "cache"
                cold = measured(subject, cache)
                warm = min(measured(subject, cache) for _ in range(2))
            print(f"{network.name:10} {name:7} {precision:9} {cold:8.2f} {warm:8.3f}", flush=True)


if __name__ == "__main__":
    main()
