"""Every way to divide a fully connected layer in panels, timed; and rates fitted to that.

    python -m benchmarks.panels --output benchmarks/results/2026-11-17-panels-h200.json
    python -m benchmarks.panels --output benchmarks/results/2026-11-17-panels-few-h200.json \
        --batches 1 4 16 32 64 128
    python -m benchmarks.panels --fit benchmarks/results/2026-11-17-panels*-h200.json

The first two need a Hopper GPU: one layer between two others, as `benchmarks.dense` has it, by all
of `tilewright.fuse.cuda.panels_ways.WAYS`, of up to 128 images also as is done for few, as CUDA
graphs of ten calls in turns with PyTorch's `linear`. The last needs none: the rates of
`tilewright.fuse.cuda.generations.PANELS` are fitted to the times (least squares of logarithms, ways
near the fastest counting most) and printed beside those that stand there; and for each, how much
longer what is chosen takes than the fastest.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.dense import CALLS, layer_between, panels_of, tenfold, values_of
from benchmarks.peers import set_tf32, timed, types
from benchmarks.rates import nearer, show

from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cuda.generations import PANELS, PanelRates
from tilewright.fuse.cuda.panels import CHUNK, in_whole_panels
from tilewright.fuse.cuda.panels_ways import WAYS, Few, Many, cycles, few_cycles
from tilewright.fuse.cuda.run import kernel_text
from tilewright.results.document import plain
from tilewright.runtime.multiprocessor import REFERENCE

BATCHES = (256, 512, 1000, 2000, 4000, 10_000)
# Features and outputs; the first are those of ece408's.
LAYERS = (
    *((16_224, 160), (3136, 512), (784, 512), (512, 512), (1024, 1024), (4096, 128)),
    (3072, 2048),
)
PRECISIONS = ("fp16", "tf32", "fp32")
Way = Few | Many
COMPILERS = 12  # kernels that are compiled at a time
NEAR = 1.3  # times the fastest, up to which a way counts threefold
# Tries, of which the second half are smaller steps; and how much it counts that what is chosen is
# fast, against how far estimates are from times: on average, at worst, and beside PyTorch, whose
# time it may take and a tenth more.
TRIES, CHOICE, SLOWER = 3000, 4, 1.1


def measured(
    runtime: Any, precision: str, features: int, outputs: int, given: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """All ways of a layer, batch by batch."""
    import cupy
    import torch

    network, plan = layer_between(precision, features, outputs)
    tensor, turns = plan.arithmetic.tensor, plan.own_pieces // CHUNK
    ways = [way for way in WAYS[tensor] if way.fits(outputs) and way.parts <= turns]

    def compiled(way: Way) -> Any:
        text = kernel_text(plan, "layer", network.input, "panels", way)
        return runtime.compile_text("layer", text, plan.threads_of(way), plan.bytes_of(way))

    few = {images: plan.few(images) for images in given.batches if images <= plan.most_few}
    every: list[Way] = [*ways, *dict.fromkeys(few.values())]
    with ThreadPoolExecutor(COMPILERS) as pool:
        kernels = dict(zip(every, pool.map(compiled, every), strict=True))
    weights = runtime.upload(plan.parameters(network.parameters))
    name = plan.layer.names[0]
    weight, bias = (torch.from_numpy(network.parameters[f"{name}.{each}"].copy()).cuda()
                    for each in ("weight", "bias"))  # fmt: skip
    for images in given.batches:
        values = torch.randn((images, features), device="cuda")
        out = torch.empty(
            in_whole_panels(images) * plan.result_words, dtype=torch.int32, device="cuda"
        )
        arrays = panels_of(plan, values), out
        taken = (*(cupy.from_dlpack(each) for each in arrays), weights, images)
        wide = (each.double() for each in (values, weight, bias))
        expected = torch.relu(torch.nn.functional.linear(*wide))
        set_tf32(precision == "tf32")
        operands = [each.to(types(precision)) for each in (values, weight, bias)]
        calls: dict[Any, Callable[[], Any]] = {
            "torch": tenfold(lambda at=operands: torch.nn.functional.linear(*at))
        }
        difference = {}
        tried = [*ways, *([few[images]] if images in few else [])]
        for way in tried:

            def ours(way: Way = way, taken: Any = taken) -> None:
                stream = torch.cuda.current_stream().cuda_stream
                runtime.kernels = cupy.cuda.ExternalStream(stream)
                runtime.enqueue(kernels[way], plan.grid(way, taken[-1]), taken, ())

            out.fill_(-1)
            ours()
            torch.cuda.synchronize()
            found = values_of(plan, out, images) - expected
            difference[way] = float(found.norm() / expected.norm())
            calls[way] = tenfold(ours)
        seconds = {
            each: [sample / CALLS for sample in of["samples_seconds"]]
            for each, of in timed(calls, given.repeats).items()
        }
        yield {
            "precision": precision, "features": features, "outputs": outputs, "images": images,
            "torch_seconds": seconds["torch"],
            "ways": [{"way": asdict(way), "difference": difference[way], "seconds": seconds[way]}
                     for way in tried],
        }  # fmt: skip


def measure(given: argparse.Namespace) -> None:
    import torch

    from tilewright.runtime.cuda import CudaRuntime
    from tilewright.runtime.device import CUDA

    runtime = CudaRuntime(CUDA)
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()), "device": torch.cuda.get_device_name(),
        "torch": torch.__version__, "calls_a_graph": CALLS, "rows": [],
    }  # fmt: skip
    with torch.inference_mode():
        for features, outputs in LAYERS:
            for precision in given.precisions:
                for row in measured(runtime, precision, features, outputs, given):
                    document["rows"].append(row)
                print(precision, features, outputs, flush=True)
                with atomic_write(given.output) as file:
                    file.write(json.dumps(document).encode())


class Case:
    """A layer and a batch, and what all ways took."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.name = f"{row['precision']} {row['features']:,} x {row['outputs']}"
        self.tensor, self.images = row["precision"] != "fp32", row["images"]
        self.outputs, per_chunk = row["outputs"], 64 if row["precision"] == "fp16" else 32
        self.turns = -(-row["features"] // per_chunk)
        self.seconds = {
            (Few if "tiles" in each["way"] else Many)(**each["way"]): median(each["seconds"])
            for each in row["ways"]
        }
        self.least = min(self.seconds.values())
        self.torch = median(row["torch_seconds"])

    def estimate(self, way: Way, rates: PanelRates) -> float:
        given = self.images, self.outputs
        if isinstance(way, Few):
            pieces = CHUNK * self.turns
            counted = few_cycles(way, *given, pieces, REFERENCE.processors, rates)
        else:
            counted = cycles(way, *given, self.turns, REFERENCE.processors, rates)
        return counted / REFERENCE.hertz

    def chosen(self, rates: PanelRates) -> float:
        """Seconds of the way that promises to be fastest."""
        return self.seconds[min(self.seconds, key=lambda way: self.estimate(way, rates))]

    def error(self, rates: PanelRates) -> float:
        return sum(
            (3 if seconds < NEAR * self.least else 1)
            * math.log(self.estimate(way, rates) / seconds) ** 2
            for way, seconds in self.seconds.items()
        )


def fitted(cases: list[Case], start: PanelRates) -> PanelRates:
    """Rates nearer and nearer to the times: one or two change at random, and are kept if better."""
    ways = sum(len(case.seconds) for case in cases)

    def loss(rates: PanelRates) -> float:
        lost = [math.log(case.chosen(rates) / case.least) for case in cases]
        behind = sum(max(0.0, math.log(case.chosen(rates) / case.torch / SLOWER)) for case in cases)
        choice = sum(lost) / len(cases) + max(lost) / 2 + behind
        return sum(case.error(rates) for case in cases) / ways + CHOICE * choice

    return nearer(start, loss, TRIES)


def fit(rows: list[dict[str, Any]]) -> None:
    for tensor in (True, False):
        cases = [case for case in map(Case, rows) if case.tensor == tensor]
        if not cases:
            continue
        print(f"\n{'with' if tensor else 'without'} tensor cores")
        show(PANELS[tensor], fitted(cases, PANELS[tensor]), cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="time all ways, into this file")
    parser.add_argument("--fit", type=Path, nargs="+", help="fit rates to such files")
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--precisions", nargs="+", default=PRECISIONS)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.output:
        measure(given)
    if given.fit:
        fit([row for file in given.fit for row in json.loads(file.read_text())["rows"]])


if __name__ == "__main__":
    main()
