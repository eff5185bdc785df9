"""A compiled network as a server calls it: latency and throughput from one to eight threads.

    python -m benchmarks.serving --device cuda --json FILE.json > FILE.md
    python -m benchmarks.serving --device cpu --json FILE.json > FILE.md

On the CPU against ONNX Runtime on the same cores, both from float32 images in the host's memory; on
a CUDA GPU against PyTorch with CUDA graphs (a graph a thread, in the faster of two layouts; images
are copied into its input, and it normalises them), both from bytes on the GPU, each thread on a
stream of its own. A call is over when its outputs are there. Engines take turns; in a turn every
thread calls as often as it needs for 15 ms. `p50` and `p99` are of all calls, throughput is of a
turn's median, with the interval of the ratio.

On a GPU the host's cost of a call is measured apart: from the call to its return, on an idle GPU,
for every way to call, networks of `--host-networks`, three precisions and sizes of batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import cycle, product
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
from benchmarks import tables

import tilewright
from tilewright import environment
from tilewright.files import atomic_write
from tilewright.measure.samples import SETTLE_SECONDS, Sample, interleave, ratio
from tilewright.model.network import Network
from tilewright.results.document import plain

BATCHES = (1, 2, 8, 64, 1000)
THREADS = (1, 2, 4, 8)
NETWORKS = ("cifar10", "ece408")
HOST_NETWORKS = ("cifar10", "ece408", "resnet8")
PRECISIONS = {"cpu": ("fp32",), "cuda": ("fp32", "fp16")}
HOST_PRECISIONS = ("fp32", "tf32", "fp16")
TOLERANCES = {"fp32": 1e-3, "fp16": 0.1}  # of probabilities, ours and PyTorch's
TURN_SECONDS = 0.015
MOST_CALLS = 300  # of a thread in a turn
HOST_BATCHES = (1, 8, 64)
HOST_TURNS, HOST_CALLS = 5, 80
Call = Callable[[], object]
# Makes what one thread calls, in that thread.
Make = Callable[[], Call]


class Callers:
    """Threads that call an engine: some of them, or all, a number of times at each turn.

    Each makes what it calls once: PyTorch's choice of algorithms takes longer than all turns.
    """

    def __init__(self, make: Make, threads: int) -> None:
        self.asked: list[SimpleQueue[int]] = [SimpleQueue() for _ in range(threads)]
        self.answered: SimpleQueue[list[float] | BaseException] = SimpleQueue()
        self.running = [
            threading.Thread(target=self._serve, args=(make, each), daemon=True)
            for each in self.asked
        ]
        for each in self.running:
            each.start()
            self._answer()  # ready; one after the other

    def turn(self, threads: int, calls: int) -> list[float]:
        """Seconds of every call, by so many threads at once."""
        for each in self.asked[:threads]:
            each.put(calls)
        return [seconds for _ in range(threads) for seconds in self._answer()]

    def calls(self, threads: int) -> int:
        """Of a thread in a turn."""
        self.turn(threads, 1)
        start = time.perf_counter()
        self.turn(threads, 1)
        return max(1, min(MOST_CALLS, int(TURN_SECONDS / (time.perf_counter() - start))))

    def end(self) -> None:
        for each, thread in zip(self.asked, self.running, strict=True):
            each.put(0)
            thread.join()

    def _answer(self) -> list[float]:
        found = self.answered.get()
        if isinstance(found, BaseException):
            raise RuntimeError("a caller failed") from found
        return found

    def _serve(self, make: Make, asked: SimpleQueue[int]) -> None:
        try:
            call, clock = make(), time.perf_counter
            self.answered.put([])
            while calls := asked.get():
                spent = []
                for _ in range(calls):
                    start = clock()
                    call()
                    spent.append(clock() - start)
                self.answered.put(spent)
        except BaseException as error:
            self.answered.put(error)


def cpu_engines(network: Network, precision: str) -> Callable[[int], dict[str, Make]]:
    import onnxruntime

    from tilewright.rungs.vendor.onnxruntime import onnx_model

    compiled = tilewright.compile(network, "cpu", precision=precision)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = environment.cpu_cores()
    model = onnx_model(network.stages[1:], network.parameters)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def engines(batch: int) -> dict[str, Make]:
        size = (batch, *network.input.shape)
        images = np.random.default_rng(batch).normal(size=size).astype(np.float32)
        expected = session.run(None, {"x": images})[0]
        np.testing.assert_allclose(compiled(images), expected, atol=1e-4)
        return {
            "tilewright": lambda: lambda: compiled(images),
            "onnxruntime": lambda: lambda: session.run(None, {"x": images})[0],
        }

    return engines


def cuda_engines(network: Network, precision: str) -> Callable[[int], dict[str, Make]]:
    import torch
    from benchmarks.peers import set_tf32

    set_tf32(precision == "tf32")
    compiled = tilewright.compile(network, "cuda", precision=precision)

    def engines(batch: int) -> dict[str, Make]:
        shape = (batch, *network.input.shape)
        images = torch.randint(0, 256, shape, device="cuda").to(torch.uint8)
        layouts = {last: torch_graph(network, precision, images, last) for last in (False, True)}
        seconds = {last: _best(make()) for last, make in layouts.items()}
        graph = layouts[min(layouts, key=lambda last: seconds[last])]

        def ours() -> Call:
            stream = torch.cuda.Stream()
            torch.cuda.set_stream(stream)
            out = torch.empty((batch, *network.output_shape), device="cuda")

            def call() -> Any:
                compiled(images, out=out)
                stream.synchronize()
                return out

            return call

        error = float((ours()() - graph()().float()).abs().max())
        assert error < TOLERANCES[precision], f"{network.name} {precision} {batch}: {error} apart"
        return {"tilewright": ours, "torch-graph": graph}

    return engines


def torch_graph(
    network: Network, precision: str, images: Any, channels_last: bool, wait: bool = True
) -> Make:
    """PyTorch's kernels as a CUDA graph from bytes to outputs; one for each thread that calls."""
    import torch
    from benchmarks.peers import forward_of, types

    forward = forward_of(network, precision, channels_last)
    scale, shift = network.input.scale, network.input.shift
    torch.cuda.synchronize()  # images and weights, which are read on other streams
    layout = torch.channels_last if channels_last else torch.contiguous_format

    def make() -> Call:
        stream = torch.cuda.Stream()
        torch.cuda.set_stream(stream)
        static = torch.zeros_like(images)
        graph = torch.cuda.CUDAGraph()

        def all_of_it() -> Any:
            values = (static.float() * scale + shift).to(types(precision))
            return forward(values.contiguous(memory_format=layout))

        with torch.no_grad():
            for _ in range(3):
                all_of_it()
            stream.synchronize()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                out = all_of_it()

        def call() -> Any:
            static.copy_(images)
            graph.replay()
            if wait:
                stream.synchronize()
            return out

        return call

    return make


def _best(call: Call) -> float:
    spent = []
    for _ in range(20):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return min(spent)


def measure(
    callers: dict[str, Callers], batch: int, threads: int, rounds: int, pause: float
) -> dict[str, Any]:
    """All engines in turns, each called by so many threads."""
    often = {name: each.calls(threads) for name, each in callers.items()}
    spent: dict[str, list[float]] = {name: [] for name in callers}
    samples = interleave(
        {name: partial(each.turn, threads, often[name]) for name, each in callers.items()},
        rounds,
        collect=lambda name, seconds: spent[name].extend(seconds),
        sleep=lambda seconds: time.sleep(pause),
    )
    found = {}
    for name, sample in samples.items():
        images = batch * threads * often[name]
        found[name] = {
            "p50_seconds": float(np.quantile(spent[name], 0.5)),
            "p99_seconds": float(np.quantile(spent[name], 0.99)),
            "images_a_second": images / sample.median,
            "calls": len(spent[name]),
            "seconds_an_image": [seconds / images for seconds in sample.seconds],
        }
    ours, *others = (Sample(tuple(each["seconds_an_image"])) for each in found.values())
    times = [ratio(other, ours) for other in others]
    return {
        "batch": batch, "threads": threads, "engines": found,
        "times": [{"value": each.value, "interval": each.interval.ends} for each in times],
    }  # fmt: skip


class Shared:
    """An array that knows DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **how: Any) -> Any:
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Interface:
    """An array that knows CUDA's array interface and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array, self.interface = array, array.__cuda_array_interface__

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.interface)


def host_costs(network: Network, precision: str) -> list[dict[str, Any]]:
    compiled = tilewright.compile(network, "cuda", precision=precision)
    rows = []
    for batch in HOST_BATCHES:
        for name, seconds in host_seconds(
            compiled, batch, graph=batch == 1 and network.is_chain
        ).items():
            p50, p99 = (float(np.quantile(seconds, part)) for part in (0.5, 0.99))
            rows.append(
                {"call": name, "network": network.name, "precision": precision, "batch": batch,
                 "p50_seconds": p50, "p99_seconds": p99, "calls": len(seconds)}
            )  # fmt: skip
    return rows


def host_seconds(compiled: Any, batch: int, graph: bool) -> dict[str, list[float]]:
    """From a call on the GPU's memory to its return, while the GPU has nothing to do.

    `graph`: of PyTorch's own, too.
    """
    import cupy
    import torch

    network = compiled.network
    images = torch.zeros((batch, *network.input.shape), dtype=torch.uint8, device="cuda")
    out = torch.empty((batch, *network.output_shape), device="cuda")
    of_cupy, out_of_cupy = cupy.from_dlpack(images), cupy.from_dlpack(out)
    shared, interface = Shared(of_cupy), Interface(of_cupy)
    others = cycle([torch.empty_like(out) for _ in range(50)])
    side, of_cupy_side = torch.cuda.Stream(), cupy.cuda.Stream(non_blocking=True)
    subjects: dict[str, Call] = {
        "PyTorch tensor, out given": lambda: compiled(images, out=out),
        "PyTorch tensor, another out each time": lambda: compiled(images, out=next(others)),
        "PyTorch tensor": lambda: compiled(images),
        "PyTorch tensor, out and stream given": lambda: compiled(images, out=out, stream=side),
        "PyTorch tensor, stream given": lambda: compiled(images, stream=side),
        "CuPy array, out given": lambda: compiled(of_cupy, out=out_of_cupy),
        "CuPy array": lambda: compiled(of_cupy),
        "CuPy array, stream given": lambda: compiled(of_cupy, stream=of_cupy_side),
        "CuPy array, PyTorch's out": lambda: compiled(of_cupy, out=out),
        "DLPack, PyTorch's out": lambda: compiled(shared, out=out),
        "DLPack": lambda: compiled(shared),
        "CUDA's array interface": lambda: compiled(interface),
    }
    if graph:
        make = torch_graph(network, compiled.precision, images, True, wait=False)
        subjects["PyTorch tensor by PyTorch's graph"] = make()
        torch.cuda.set_stream(torch.cuda.default_stream())
    spent: dict[str, list[float]] = {name: [] for name in subjects}
    for turn in range(HOST_TURNS):
        for name, call in subjects.items():
            for number in range(HOST_CALLS):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call()
                seconds = time.perf_counter() - start
                if turn or number >= HOST_CALLS // 2:  # the first make what later ones use
                    spent[name].append(seconds)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--networks", nargs="*", default=NETWORKS)
    parser.add_argument("--host-networks", nargs="*", default=HOST_NETWORKS)
    parser.add_argument("--batches", nargs="*", type=int, default=BATCHES)
    parser.add_argument("--threads", nargs="*", type=int, default=THREADS)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    gpu = given.device == "cuda"
    # A library's threads spin on after a call, and would be in the way of the next engine.
    pause = 0.0 if gpu else SETTLE_SECONDS
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()), "device": given.device, "rows": [],
        "host": [],
    }  # fmt: skip
    if gpu:
        import torch

        document["gpu"] = torch.cuda.get_device_name()
        document["torch"] = torch.__version__
        for name, precision in product(given.host_networks, HOST_PRECISIONS):
            document["host"] += host_costs(tilewright.load(name), precision)
    for name in given.networks:
        network = tilewright.load(name)
        for precision in PRECISIONS[given.device]:
            engines = (cuda_engines if gpu else cpu_engines)(network, precision)
            for batch in given.batches:
                began, most = time.perf_counter(), max(given.threads)
                callers = {each: Callers(make, most) for each, make in engines(batch).items()}
                for threads in given.threads:
                    row = measure(callers, batch, threads, given.rounds, pause)
                    document["rows"].append({"network": name, "precision": precision, **row})
                for each in callers.values():
                    each.end()
                seconds = time.perf_counter() - began
                print(f"{name} {precision} {batch}: {seconds:.0f} s", file=sys.stderr)
    with atomic_write(given.json) as file:
        file.write(json.dumps(document, indent=1).encode())
    if document["rows"]:
        print(tables.serving(document, given.threads))
    if document["host"]:
        print(f"\n{tables.host_costs(document)}")


if __name__ == "__main__":
    main()
