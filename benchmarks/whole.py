"""A network's only kernel, for few images: arrangements timed, and the rates behind the choice.

    python -m benchmarks.whole --output benchmarks/results/DATE-whole-h200.json
    python -m benchmarks.whole

The first needs a Hopper GPU: all operations of a network in one kernel, for every number of warps
and groups and every weight of a unit, the ten with the least estimates, called as CUDA graphs in
turns. The second needs none: it fits `FewRates.whole` to what was measured so. The fit is drawn at
random from rough numbers: the least squares of the logarithms, arrangements near the fastest
counting most, and how much longer what is chosen takes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.builds import every_network
from benchmarks.peers import graphed, timed
from numpy.typing import NDArray

from tilewright import environment
from tilewright.files import atomic_write
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import SHAPES, Arrangement, stack_as
from tilewright.fuse.cuda.cut import for_few
from tilewright.fuse.cuda.few import stack_cycles
from tilewright.fuse.cuda.generations import HOPPER, Generation, Rates
from tilewright.fuse.cuda.run import kernel_text
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.sums import WEIGHTS
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.network import Network
from tilewright.results.document import plain
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.truth.trials import random_parameters

MEASURED = Path(__file__).parent / "results" / "2026-11-18-whole-h200.json"
CASES = ("cifar10", "small", "lenet5", "strided", "caffe-lenet", "mnist3x3", "small-perceptron")
IMAGES = (1, 64)
MOST = 10
# What the estimates of a network's kernels in tiles are of the times that they take as CUDA graphs
# (82 to 92 %, `2026-11-18-strangers-h200.json` and `2026-11-18-cuda-h200.json`): one kernel is
# compared with those.
SCALE = 0.86
FITTED = (
    "product", "read", "result", "own_product", "own_step", "own_unit", "together", "own_together",
)  # fmt: skip
ROUGH = np.array([1, 0.5, 20, 6, 100, 300, 0.3, 6, 40, 0.1])  # those, a warp, a word
START = HOPPER.few.whole.start  # not fitted: the same for all
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Arranged:
    """All operations of a network in one kernel."""

    network: str
    precision: str
    warps: int
    groups: int
    weight: float

    @cached_property
    def plan(self) -> Stack | None:
        gpu, chosen = for_few(HOPPER), Arrangement(0, self.warps, self.groups, self.weight)
        todo = to_do(every_network()[self.network].stages, gpu)
        return stack_as(chosen, ARITHMETICS[self.precision], todo, gpu)


def arrangements(network: Network, precision: str) -> list[Arranged]:
    """Those with the least estimates, none twice."""
    found: dict[str, Arranged] = {}
    for (warps, groups), weight in itertools.product(SHAPES, WEIGHTS):
        one = Arranged(network.name, precision, warps, groups, weight)
        if one.plan is not None:
            found.setdefault(_text(one.plan, network), one)

    def estimate(one: Arranged) -> float:
        assert one.plan
        return stack_cycles(one.plan, 1, for_few(HOPPER))

    return sorted(found.values(), key=estimate)[:MOST]


def _text(plan: Stack, network: Network) -> str:
    return kernel_text(plan, "network", network.input, "uint8")


def measure(runtime: Any, name: str, precision: str, repeats: int) -> Iterator[dict[str, Any]]:
    import cupy
    import torch

    bare = every_network()[name]
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    every = arrangements(network, precision)
    plans = [one.plan for one in every if one.plan]
    runtime.compile_ahead([("network", _text(plan, network)) for plan in plans])
    made = []
    for plan in plans:
        text = _text(plan, network)
        kernel = runtime.compile_text("network", text, plan.threads, plan.shared_bytes)
        own = plan.parameters(network.parameters), plan.tables[0]
        made.append((kernel, [runtime.upload(each) for each in own]))
    torch.cuda.synchronize()  # graphs are made on other streams
    for images in IMAGES:
        shape = images, *network.input.shape
        pixels = cupy.from_dlpack(torch.randint(0, 256, shape, device="cuda").to(torch.uint8))
        out = cupy.from_dlpack(torch.empty((images, *network.output_shape), device="cuda"))
        calls = {}
        for number, (kernel, held) in enumerate(made):

            def call(x: Any, kernel: Any = kernel, rest: Any = (out, *held, images)) -> None:
                stream = torch.cuda.current_stream().cuda_stream
                runtime.kernels = cupy.cuda.ExternalStream(stream)
                runtime.enqueue(kernel, (min(runtime.limits.processors, len(x)), 1, 1),
                                (x, *rest), ())  # fmt: skip

            calls[str(number)] = graphed(call, pixels)
        samples = timed(calls, repeats)
        for number, one in enumerate(every):
            seconds = samples[str(number)]["samples_seconds"]
            yield {
                "network": name, "precision": precision, "images": images, "warps": one.warps,
                "groups": one.groups, "weight": one.weight,
                "microseconds": [round(1e6 * each, 3) for each in seconds],
            }  # fmt: skip


def _is_held(one: Arranged) -> bool:
    """Whether all weights lie in shared memory: those of other plans cost what was chosen."""
    return one.plan is not None and all(phase.shared for phase in one.plan.sums)


class Fit:
    """What was measured with tensor cores, or without, and what each rate counts for in it."""

    def __init__(self, rows: Sequence[dict[str, Any]], tensor: bool) -> None:
        own = [row for row in rows if ARITHMETICS[row["precision"]].tensor == tensor]
        self.rows = [row for row in own if _is_held(self._arranged(row))]
        self.tensor = tensor
        times = [statistics.median(row["microseconds"]) for row in self.rows]
        self.cycles: Array = np.array(times) * 1e-6 * REFERENCE.hertz * SCALE
        self.cases: dict[object, list[int]] = defaultdict(list)
        for number, row in enumerate(self.rows):
            self.cases[row["network"], row["precision"], row["images"]].append(number)
        known = {self._arranged(row): None for row in self.rows}
        counts = {one: self._counts(one) for one in known}
        self.work, self.wait, self.more = (
            np.array([counts[self._arranged(row)][part] for row in self.rows]) for part in range(3)
        )
        least = {case: self.cycles[of].min() for case, of in self.cases.items()}
        near = [least[row["network"], row["precision"], row["images"]] for row in self.rows]
        self.near: Array = (np.array(near) / self.cycles) ** 2

    @staticmethod
    def _arranged(row: dict[str, Any]) -> Arranged:
        names = ("network", "precision", "warps", "groups", "weight")
        return Arranged(*(row[name] for name in names))

    def _counts(self, one: Arranged) -> tuple[list[float], list[float], list[float]]:
        """Work and wait are linear in the rates: the code is asked with one of them 1, others 0.
        What there is without any comes last."""
        plan = one.plan
        assert plan
        nothing = replace(HOPPER.few.whole.tensor, **dict.fromkeys(FITTED, 0.0))
        found = []
        for rates in (*(replace(nothing, **{name: 1.0}) for name in FITTED), nothing):
            gpu = self.with_rates(rates)
            kind, warps = plan.arithmetic, plan.warps
            work = sum(phase.work(kind, gpu, warps, 1) for phase in plan.phases)
            found.append((work, sum(phase.wait(kind, warps, gpu) for phase in plan.phases)))
        *some, (work, wait) = found
        return (
            [*(each - work for each, _ in some), work], [*(each - wait for _, each in some), wait],
            [plan.warps * plan.groups, plan.shared_words - plan.late_words],
        )  # fmt: skip

    def with_rates(self, rates: Rates) -> Generation:
        """In fp32 with as many cycles for a product where a lane has two sums of each."""
        rates = replace(rates, twice=rates.product)
        return replace(for_few(HOPPER), **{"tensor" if self.tensor else "plain": rates})

    def estimates(self, rates: Array) -> Array:
        sums, more = np.array([*rates[: len(FITTED)], 1.0]), rates[len(FITTED) :]
        found: Array = START + self.more @ more + np.hypot(self.work @ sums, self.wait @ sums)
        return found

    def table(self) -> Array:
        whole = HOPPER.few.whole
        rates = whole.tensor if self.tensor else whole.plain
        return np.array([*(getattr(rates, name) for name in FITTED), whole.warp, whole.word])

    def losses(self, rates: Array) -> dict[object, float]:
        """How much longer what is chosen takes, of a group to a block."""
        found, estimates = {}, self.estimates(rates)
        for case, numbers in self.cases.items():
            of = [number for number in numbers if self.rows[number]["groups"] == 1]
            if not of:
                continue
            chosen = min(of, key=lambda number: estimates[number])
            found[case] = float(self.cycles[chosen] / self.cycles[of].min() - 1)
        return found

    def fitted(self, draws: int = 20_000) -> Array:
        generator = np.random.default_rng(0)

        def cost(rates: Array) -> float:
            misses = np.log(self.estimates(rates) / self.cycles)
            lost = statistics.mean(self.losses(rates).values())
            return float(np.average(misses**2, weights=self.near)) + 0.06 * lost

        best = ROUGH.copy()
        best[len(FITTED) :] = ROUGH[len(FITTED) :] if self.tensor else self.table()[len(FITTED) :]
        least = cost(best)
        for _ in range(draws):
            step = generator.normal(0, 0.12, len(best)) * (generator.random(len(best)) < 0.4)
            if not self.tensor:
                step[len(FITTED) :] = 0  # as with tensor cores
            tried = best * np.exp(step)
            found = cost(tried)
            if found < least:
                best, least = tried, found
        return best


def report(rows: Sequence[dict[str, Any]], tensor: bool) -> str:
    fit = Fit(rows, tensor)
    columns = {"table": fit.table(), "fitted": fit.fitted()}
    title = "tensor cores" if tensor else "multiply-adds"
    lines = [f"{title}: {len(fit.rows)} times of {len(fit.cases)} cases"]
    lines.append(" " * 34 + "".join(f"{word:>12}" for word in columns))
    for number, name in enumerate((*FITTED, "warp", "word")):
        lines.append(f"  {name:32}" + "".join(f"{each[number]:12.4g}" for each in columns.values()))
    errors = [np.abs(fit.estimates(each) / fit.cycles - 1).mean() for each in columns.values()]
    lost = [list(fit.losses(each).values()) for each in columns.values()]
    for word, numbers in (
        ("estimate against time, mean", errors),
        ("chosen against fastest, mean", [statistics.mean(each) for each in lost]),
        ("chosen against fastest, worst", [max(each) for each in lost]),
    ):
        lines.append(f"  {word:32}" + "".join(f"{each:12.1%}" for each in numbers))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("measured", type=Path, nargs="?", default=MEASURED)
    parser.add_argument("--output", type=Path, help="measure, into this file")
    parser.add_argument("--networks", nargs="+", default=CASES)
    parser.add_argument("--precisions", nargs="+", default=("fp16", "tf32", "fp32"))
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    if given.output is None:
        rows = json.loads(given.measured.read_text())["rows"]
        print(report(rows, tensor=True), report(rows, tensor=False), sep="\n")
        return

    import torch

    from tilewright.runtime.cuda import CudaRuntime
    from tilewright.runtime.device import CUDA

    runtime = CudaRuntime(CUDA)
    document: dict[str, Any] = {
        "environment": plain(environment.fingerprint()), "device": torch.cuda.get_device_name(),
        "rows": [],
    }  # fmt: skip
    for name, precision in itertools.product(given.networks, given.precisions):
        document["rows"] += measure(runtime, name, precision, given.repeats)
        print(name, precision, flush=True)
        text = json.dumps(document).replace('{"network": ', '\n{"network": ')
        with atomic_write(given.output) as file:
            file.write(f"{text}\n".encode())


if __name__ == "__main__":
    main()
