"""Ways to divide a wide convolution in patches, timed; and rates fitted to that.

    python -m benchmarks.patches --output benchmarks/results/2026-11-18-patches-h200.json
    python -m benchmarks.patches --fit benchmarks/results/2026-11-18-patches-h200.json

The first needs a Hopper GPU: one convolution between two others, with ReLU and for some a pooling,
by the plans that `tilewright.fuse.cuda.patches_choice.cycles` holds for the best and some that it
does not, as CUDA graphs of ten calls in turns with PyTorch's convolution alone (channels last, but
in float32; cuDNN's algorithm by trial). Every result is compared with float64. The second needs
none: the rates of `tilewright.fuse.cuda.generations` (`PATCHES`; `PLAIN_PATCHES` in fp32) are
fitted to the times and printed beside those that stand there; and for each layer, how much longer
what is chosen takes than the fastest.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from benchmarks.dense import CALLS, tenfold
from benchmarks.peers import set_tf32, timed, types
from benchmarks.rates import nearer, show

from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.choice import Patched
from tilewright.fuse.cuda.generations import HOPPER, PatchRates
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.patches_choice import all_patches, cycles
from tilewright.fuse.cuda.run import kernel_text
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import Add, Convolution, Layer, MaxPool, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.truth.trials import random_parameters

PRECISIONS = ("fp16", "tf32", "tf32x3", "fp32")
BATCHES = (16, 100, 1000)
COMPILERS = 14  # kernels that are compiled at a time
TRIES, CHOICE = 4000, 4  # as in `benchmarks.panels`


@dataclass(frozen=True)
class Wide:
    """A convolution's channels, filters, side of the picture, taps along a side, and so on."""

    channels: int
    filters: int
    side: int
    taps: int = 3
    stride: int = 1
    pool: bool = False
    valid: bool = False  # nothing is around the picture
    apart: int = 1  # from a tap to the next
    groups: int = 1  # of channels
    added: bool = False  # another picture, to its sums
    row: bool = False  # a picture of one row, and taps

    @property
    def padding(self) -> tuple[int, int]:
        around = 0 if self.valid else self.apart * (self.taps // 2)
        return self.of(around, 0)

    def of(self, across: int, else_: int) -> tuple[int, int]:
        """What it is along x; and along y, unless there is but one row."""
        return else_ if self.row else across, across


LAYERS = (
    Wide(64, 64, 32, pool=True), Wide(64, 192, 32, 5, pool=True), Wide(128, 128, 16),
    Wide(192, 384, 16), Wide(384, 256, 16, pool=True), Wide(256, 256, 8), Wide(96, 96, 32),
    Wide(96, 96, 32, stride=2), Wide(192, 192, 8, valid=True), Wide(192, 160, 32, 1),
    Wide(64, 128, 14), Wide(32, 64, 28, 5, pool=True), Wide(512, 512, 4),
    Wide(256, 512, 8, stride=2), Wide(24, 24, 64, apart=4), Wide(64, 64, 8),
    Wide(100, 150, 21, 4, pool=True, valid=True), Wide(150, 250, 9, 4, pool=True, valid=True),
    Wide(96, 256, 27, 5, groups=2), Wide(384, 384, 13, groups=2), Wide(64, 64, 16, groups=8),
    Wide(64, 256, 24, 1), Wide(64, 256, 24, 1, added=True), Wide(256, 128, 24, 1),
    Wide(128, 512, 12, 1), Wide(256, 512, 24, 1, stride=2, added=True), Wide(512, 256, 12, 1),
    Wide(256, 1024, 6, 1), Wide(1024, 2048, 6, 1, stride=2, added=True),
    Wide(64, 64, 32, added=True), Wide(128, 128, 16, added=True), Wide(512, 512, 4, added=True),
    Wide(64, 64, 128, 5, row=True), Wide(64, 64, 128, 5, apart=8, row=True),
    Wide(70, 128, 256, 7, valid=True, row=True), Wide(32, 32, 187, 5, row=True),
    Wide(96, 48, 17, 1), Wide(160, 64, 17, 1), Wide(256, 64, 14, 1), Wide(128, 512, 7, 1),
    Wide(64, 64, 19, 1), Wide(200, 128, 9), Wide(128, 64, 9),
)  # fmt: skip


def between(wide: Wide) -> Network:
    """A convolution that takes words and gives words, and the network that it is one of."""
    own: tuple[Layer, ...] = (
        Convolution(wide.filters, wide.of(wide.taps, 1), stride=wide.of(wide.stride, 1),
                    padding=wide.padding, dilation=wide.of(wide.apart, 1),
                    groups=wide.groups), ReLU(),
        *([MaxPool(2)] if wide.pool else []),
    )  # fmt: skip
    first: tuple[Layer, ...] = (Convolution(wide.channels, 1), ReLU())
    sources: list[tuple[int, ...]] = [(0,), (1,)]
    if wide.added:
        first += (Convolution(wide.filters, 1, stride=wide.of(wide.stride, 1)),)
        own = own[0], Add(), *own[1:]
        sources += [(2,), (2,), (4, 3)]
    layers = *first, *own, Convolution(8, 1)
    sources += [(number,) for number in range(len(sources), len(layers))]
    pixels = Pixels((3, *wide.of(wide.side, 1)))
    bare = Network("between", pixels, layers, sources=tuple(sources))
    return bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))


def plans_of(wide: Wide, precision: str) -> list[Patches]:
    operation = to_do(between(wide).stages, HOPPER)[2 if wide.added else 1]
    return list(all_patches(ARITHMETICS[precision], operation, HOPPER))


def tried(plans: list[Patches], most: int) -> list[Patches]:
    """Those that promise most for any batch, with images beside each other, in a line and without,
    with one block a multiprocessor and with two, and others by chance."""
    best: dict[Patches, None] = {}
    ways = {(plan.eights > 0, plan.line, plan.sharing) for plan in plans}
    each = max(1, most // (len(ways) * len(BATCHES)))
    for images, way in itertools.product(BATCHES, sorted(ways)):
        own = [plan for plan in plans if (plan.eights > 0, plan.line, plan.sharing) == way]
        ordered = sorted(own, key=lambda plan: cycles(plan, images, REFERENCE.processors))
        best.update(dict.fromkeys(ordered[:each]))
    rest = [plan for plan in plans if plan not in best]
    random.Random(0).shuffle(rest)
    return [*best, *rest[: max(0, most - len(best))]]


def measured(
    runtime: Any, precision: str, wide: Wide, given: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    import cupy
    import torch

    network, plans = between(wide), tried(plans_of(wide, precision), given.plans)

    def compiled(plan: Patches) -> Any:
        text = kernel_text(plan, "layer", network.input, "words")
        return runtime.compile_text("layer", text, plan.threads, plan.shared_bytes)

    with ThreadPoolExecutor(COMPILERS) as pool:
        kernels = dict(zip(plans, pool.map(compiled, plans), strict=True))
    weights = {plan: runtime.upload(plan.parameters(network.parameters)) for plan in plans}
    name = "conv3" if wide.added else "conv2"
    weight, bias = (torch.from_numpy(network.parameters[f"{name}.{each}"].copy()).cuda()
                    for each in ("weight", "bias"))  # fmt: skip
    kind = types(precision)
    for images in given.batches:
        values = torch.randn((images, wide.channels, *wide.of(wide.side, 1)), device="cuda")
        if precision == "tf32":  # as operands: what a layer before it would give
            values = ((values.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        last = values.to(kind).contiguous(memory_format=torch.channels_last)
        with torch.backends.cudnn.flags(benchmark=False):
            few = slice(max(0, images - 8), images)  # the last ones
            expected = torch.nn.functional.conv2d(
                last[few].double(),
                weight.double(),
                bias.double(),
                wide.of(wide.stride, 1),
                wide.padding,
                wide.of(wide.apart, 1),
                wide.groups,
            )
            added = torch.randn((images, *expected.shape[1:]), device="cuda").to(kind)
            added = added.to(memory_format=torch.channels_last)
            expected = (expected + added[few].double() if wide.added else expected).relu()
            if wide.pool:
                expected = torch.nn.functional.max_pool2d(expected, 2)
        set_tf32(precision == "tf32")
        own_weight, own_bias, theirs = weight.to(kind), bias.to(kind), last
        if kind == torch.float32 and precision != "tf32":
            theirs = values
        else:
            own_weight = own_weight.to(memory_format=torch.channels_last)
        calls: dict[Any, Any] = {
            "torch": tenfold(lambda w=own_weight, b=own_bias, x=theirs: torch.nn.functional.conv2d(
                x, w, b, wide.of(wide.stride, 1), wide.padding, wide.of(wide.apart, 1),
                wide.groups))
        }  # fmt: skip
        rows = last.permute(0, 2, 3, 1).contiguous()
        out = torch.empty((images, *expected.shape[2:], expected.shape[1]), dtype=kind,
                          device="cuda")  # fmt: skip
        others = added.permute(0, 2, 3, 1).contiguous() if wide.added else None
        given_arrays = tuple(cupy.from_dlpack(each) for each in (rows, out))
        more = (cupy.from_dlpack(others),) if others is not None else ()
        difference = {}
        for plan in plans:
            most = plan.sharing * runtime.limits.processors
            grid = (min(most, plan.works(images)), 1, 1)

            def ours(
                plan: Patches = plan, grid: Any = grid, arrays: Any = given_arrays,
                images: int = images, more: Any = more,
            ) -> None:  # fmt: skip
                stream = torch.cuda.current_stream().cuda_stream
                runtime.kernels = cupy.cuda.ExternalStream(stream)
                given = (*arrays, weights[plan], images, *more)
                runtime.enqueue(kernels[plan], grid, given, ())

            out.fill_(float("nan"))
            ours()
            torch.cuda.synchronize()
            found = out[few].permute(0, 3, 1, 2).double() - expected
            whole = bool(torch.isfinite(out).all())
            difference[plan] = float(found.norm() / expected.norm()) if whole else math.nan
            calls[plan] = tenfold(ours)
        seconds = {
            each: [sample / CALLS for sample in of["samples_seconds"]]
            for each, of in timed(calls, given.repeats).items()
        }
        yield {
            "precision": precision, "layer": plain(wide), "images": images,
            "torch_seconds": seconds["torch"],
            "plans": [{"plan": plain(plan.chosen), "difference": difference[plan],
                       "seconds": seconds[plan]} for plan in plans],
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
        for wide in (LAYERS[each] for each in given.layers):
            for precision in given.precisions:
                for row in measured(runtime, precision, wide, given):
                    document["rows"].append(row)
                    best = min(row["plans"], key=lambda each: median(each["seconds"]))
                    worst = max(each["difference"] for each in row["plans"])
                    us, peer = 1e6 * median(best["seconds"]), 1e6 * median(row["torch_seconds"])
                    print(f"{precision} {wide} {row['images']}: {us:.1f} µs, PyTorch {peer:.1f}; "
                          f"difference {worst:.1e}; {best['plan']}", flush=True)  # fmt: skip
                with atomic_write(given.output) as file:
                    file.write(json.dumps(document).encode())


class Case:
    """A layer and a batch, and what all plans took, in one run or several."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        wide, precision = Wide(**rows[0]["layer"]), rows[0]["precision"]
        self.name, self.images = f"{precision} {wide}", rows[0]["images"]
        self.tensor = ARITHMETICS[precision].tensor
        known = {each.chosen: each for each in plans_of(wide, precision)}
        self.seconds = {
            known[chosen]: median(each["seconds"])
            for row in rows for each in row["plans"]
            if (chosen := msgspec.convert(each["plan"], Patched)) in known
        }  # fmt: skip
        self.least = min(self.seconds.values())
        self.torch = min(median(row["torch_seconds"]) for row in rows)

    def estimate(self, plan: Patches, rates: PatchRates) -> float:
        return cycles(plan, self.images, REFERENCE.processors, rates) / REFERENCE.hertz

    def chosen(self, rates: PatchRates) -> float:
        """Seconds of the plan that promises to be fastest."""
        return self.seconds[min(self.seconds, key=lambda plan: self.estimate(plan, rates))]

    def error(self, rates: PatchRates) -> float:
        return sum(
            math.log(self.estimate(plan, rates) / seconds) ** 2
            for plan, seconds in self.seconds.items()
        ) / len(self.seconds)


def fitted(cases: list[Case], start: PatchRates) -> PatchRates:
    """Rates nearer and nearer to the times: one or two change at random, and are kept if better."""

    def loss(rates: PatchRates) -> float:
        lost = [math.log(case.chosen(rates) / case.least) for case in cases]
        choice = sum(lost) / len(cases) + max(lost) / 4
        return sum(case.error(rates) for case in cases) / len(cases) + CHOICE * choice

    return nearer(start, loss, TRIES)


def fit(rows: list[dict[str, Any]]) -> None:
    alike: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = row["precision"], Wide(**row["layer"]), row["images"]
        alike.setdefault(key, []).append(row)
    cases = [Case(each) for each in alike.values()]
    for tensor in (True, False):
        own = [case for case in cases if case.tensor == tensor]
        if own:
            stands = next(iter(own[0].seconds)).rates
            show(stands, fitted(own, stands), own)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, help="time plans, into this file")
    parser.add_argument("--fit", type=Path, nargs="+", help="fit rates to such files")
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument(
        "--layers", type=int, nargs="+", default=range(len(LAYERS)), help="their numbers, from 0 on"
    )
    parser.add_argument("--plans", type=int, default=12, help="of a layer")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    if given.output:
        measure(given)
    if given.fit:
        fit([row for file in given.fit for row in json.loads(file.read_text())["rows"]])


if __name__ == "__main__":
    main()
