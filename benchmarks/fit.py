"""The constants behind the choice of a whole-network kernel's plan, fitted to measured plans.

    python -m benchmarks.fit [benchmarks/results/2026-11-18-plans-h200.json]

Needs no GPU: plans and their times are in the file. Each measured plan is built once more from its
units, and its estimate (`cut.cost_of`) compared with the time that it took. The fit, the least
squares of the logarithms with plans near the fastest counting most, is printed beside the table
(`tilewright.fuse.cuda.generations`); and, drawn at random from there, one to choices, so that
networks cut into one kernel or two by the least estimates take as little longer than the fastest as
can be. Below: how far estimates are from times; and for every network, how much longer what the
table chooses takes than the fastest, by number of images.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu import networks
from numpy.typing import NDArray

from tilewright.fuse.cuda import fold
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import divisions
from tilewright.fuse.cuda.generations import HOPPER, Generation, Rates
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.fuse.cuda.sums import Shares, planes, source_picture
from tilewright.fuse.cuda.to_do import to_do
from tilewright.runtime.multiprocessor import REFERENCE

PLANS = Path(__file__).parent / "results" / "2026-11-18-plans-h200.json"
# All but what weights outside of shared memory cost, and strips: of these the plans, most of which
# have few such, say less than others do that were chosen by it.
FITTED = tuple(field.name for field in fields(Rates) if field.name not in ("distant", "strips"))
# Where the fit begins: the size of each constant, roughly.
ROUGH = np.array([1, 1, 1, 0.5, 5, 10, 50, 100, 300, 1, 5, 100, 1000])
TYPICAL = "10000"  # images, that estimates are fitted for
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A plan that was timed: of what layers, and how the network was cut (operations of its first
    kernel)."""

    network: str
    precision: str
    cut: int
    first: int
    plan: Stack
    moved_words: float  # to and from device memory
    milliseconds: dict[str, float]  # by images

    @property
    def kernel(self) -> tuple[str, str, int, int]:
        return self.network, self.precision, self.cut, self.first

    @property
    def cycles(self) -> float:
        """Of a multiprocessor, an image: what `cut.cost_of` estimates."""
        seconds = 1e-3 * self.milliseconds[TYPICAL]
        return seconds * REFERENCE.hertz * REFERENCE.processors / int(TYPICAL)


@dataclass(frozen=True)
class Plans:
    """Measured plans, with what each constant counts for in their estimates."""

    measured: Sequence[Measured]
    tensor: bool

    @cached_property
    def truth(self) -> Array:
        return np.array([each.cycles for each in self.measured])

    @cached_property
    def counts(self) -> tuple[Array, Array, Array, Array]:
        """Work and wait of every plan: what each constant adds, and what there is without any.

        Both are linear in the constants, so the code is asked with one of them 1, all others 0.
        """
        nothing = replace(self.rates, **dict.fromkeys(FITTED, 0.0))
        bare = self.with_rates(nothing)
        ones = [self.with_rates(replace(nothing, **{name: 1.0})) for name in FITTED]
        plans = [each.plan for each in self.measured]
        work, wait = np.array([[(p.work(one), p.wait(one)) for one in ones] for p in plans]).T
        least = np.array([(p.work(bare), p.wait(bare)) for p in plans]).T
        return (work - least[0]).T, (wait - least[1]).T, *least

    @property
    def rates(self) -> Rates:
        return HOPPER.tensor if self.tensor else HOPPER.plain

    def with_rates(self, rates: Rates) -> Generation:
        return replace(HOPPER, **{"tensor" if self.tensor else "plain": rates})

    def estimates(self, constants: Array) -> Array:
        work, wait, least_work, least_wait = self.counts
        groups = np.array([each.plan.groups for each in self.measured])
        parts = np.array([_parts(each.plan, self.rates) for each in self.measured])
        both = least_work + work @ constants, (least_wait + wait @ constants) / groups
        moved = np.array([each.moved_words for each in self.measured]) / HOPPER.words_a_cycle
        found: Array = parts * np.hypot(*both) + HOPPER.launch_cycles + moved
        return found

    def table(self) -> Array:
        rates = asdict(self.rates)
        return np.array([rates[name] for name in FITTED])

    @cached_property
    def near(self) -> Array:
        """How much a plan counts: those near the fastest of their kernel most."""
        least: dict[object, float] = defaultdict(lambda: np.inf)
        for each in self.measured:
            least[each.kernel] = min(least[each.kernel], each.cycles)
        return np.array([(least[each.kernel] / each.cycles) ** 2 for each in self.measured])


def _parts(plan: Stack, rates: Rates) -> float:
    return rates.strips * len(plan.strip.starts) if plan.strip else 1


def fit(plans: Plans, rounds: int = 300) -> Array:
    """Least squares of logarithms: damped steps of Gauss and Newton.

    Constants are counted in their rough sizes; one that would be negative is zero.
    """
    constants, damping = np.ones_like(ROUGH), 1e-2
    target = np.log(plans.truth)

    def misses(each: Array) -> Array:
        found: Array = (np.log(plans.estimates(each * ROUGH)) - target) * plans.near
        return found

    miss = misses(constants)
    for _ in range(rounds):
        slopes = np.stack(
            [(misses(constants + 1e-6 * unit) - miss) / 1e-6 for unit in np.eye(len(ROUGH))], -1
        )
        normal = slopes.T @ slopes
        damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
        tried = np.maximum(constants - np.linalg.solve(damped, slopes.T @ miss), 0.0)
        found = misses(tried)
        if found @ found < miss @ miss:
            constants, miss, damping = tried, found, damping / 3
        else:
            damping *= 4
    return constants * ROUGH


def fit_choices(plans: Plans, start: Array, draws: int = 1500) -> Array:
    """From there at random to constants by which better plans are chosen; else nearer to times."""
    generator = np.random.default_rng(0)

    def cost(each: Array) -> tuple[float, float]:
        whole = [loss for of in losses(plans, each).values() for loss in of.values()]
        alone = list(kernel_losses(plans, each).values())
        error = np.abs(np.log(plans.estimates(each) / plans.truth)).mean()
        lost = max(whole) + 0.5 * np.mean(whole) + 0.3 * max(alone) + np.mean(alone)
        return round(float(lost), 3), float(error)

    best, least = start, cost(start)
    for _ in range(draws):
        step = generator.normal(0, generator.choice([0.03, 0.1, 0.25]), len(start))
        tried = best * np.exp(step * (generator.random(len(start)) < 0.4))
        found = cost(tried)
        if found < least:
            best, least = tried, found
    return best


def kernel_losses(plans: Plans, constants: Array) -> dict[object, float]:
    """The same of single kernels, each of those that their networks were cut into."""
    rows: dict[object, list[tuple[float, float]]] = defaultdict(list)
    for each, estimate in zip(plans.measured, plans.estimates(constants), strict=True):
        rows[each.kernel].append((float(estimate), each.cycles))
    return {kernel: min(of)[1] / min(cycles for _, cycles in of) - 1 for kernel, of in rows.items()}


def losses(plans: Plans, constants: Array) -> dict[tuple[str, str], dict[str, float]]:
    """How much longer what is chosen takes than the fastest, by network and images."""
    cuts: dict[tuple[str, str], dict[int, dict[int, list[tuple[float, Measured]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for each, estimate in zip(plans.measured, plans.estimates(constants), strict=True):
        cuts[each.network, each.precision][each.cut][each.first].append((float(estimate), each))
    found = {}
    for network, of in cuts.items():
        best = {
            cut: [min(some, key=lambda each: each[0]) for some in kernels.values()]
            for cut, kernels in of.items()
        }
        chosen = min(best.values(), key=lambda some: (
            sum(cost for cost, _ in some) * HOPPER.worth_it ** len(some)))  # fmt: skip
        # Images that all were timed with.
        counts = [each.milliseconds.keys() for kernels in of.values()
                  for some in kernels.values() for _, each in some]  # fmt: skip
        found[network] = {
            images: sum(each.milliseconds[images] for _, each in chosen) / _fastest(of, images) - 1
            for images in sorted(set.intersection(*map(set, counts)), key=int)
        }
    return found


def _fastest(cuts: dict[int, dict[int, list[tuple[float, Measured]]]], images: str) -> float:
    return min(
        sum(min(each.milliseconds[images] for _, each in some) for some in kernels.values())
        for kernels in cuts.values()
    )


def plans_of(document: dict[str, Any], tensor: bool) -> Plans:
    rows = [row for row in document["plans"] if ARITHMETICS[row["precision"]].tensor == tensor]
    return Plans([_measured(row) for row in rows], tensor)


def _measured(row: dict[str, Any]) -> Measured:
    network = next(each for each in networks() if each.name == row["network"])
    first, arithmetic = row["first"], ARITHMETICS[row["precision"]]
    todo: Sequence[Operation] = to_do(network.stages, HOPPER)[first : first + row["operations"]]
    strip = None
    if row["strips"] > 1:
        todo, strip = next(
            (parts, strip)
            for parts, strip in divisions(todo)
            if strip and len(strip.starts) == row["strips"]
        )
    sums, phases = iter(row["sums"]), []
    for operation in todo:
        if operation.kind != "sum":
            source = plain(arithmetic, operation.source)
            phases.append(Phase(operation, source, None, planes(operation.result)))
            continue
        one = next(sums)
        if one["folded"]:
            operation = fold.folded(operation, arithmetic)
        shares = Shares(operation.geometry, arithmetic, one["rows"], one["columns"], one["wide"],
                        one["in_turn"], one["twice"])  # fmt: skip
        if shares.units != one["units"]:
            raise SystemExit(f"{operation.names[0]}: {shares.units} units, not {one['units']}")
        source = source_picture(shares, first == 0 and not phases, HOPPER.unaligned)
        phases.append(
            Phase(operation, source, None, planes(operation.result), shares, one["shared"],
                  warpgroup=one["warpgroup"])
        )  # fmt: skip
    plan = Stack(
        arithmetic, tuple(phases), row["warps"], row["groups"], todo[0].forms[0], "output", 0,
        row["staged"], strip, held=row["held"],
    )  # fmt: skip
    times = {images: statistics.median(each) for images, each in row["ms"].items()}
    return Measured(network.name, row["precision"], row["cut"], first, plan, row["moved"], times)


def report(name: str, plans: Plans) -> str:
    times = fit(plans)
    columns = {"table": plans.table(), "to times": times, "to choices": fit_choices(plans, times)}
    kernels = {each.kernel for each in plans.measured}
    lines = [f"{name}: {len(plans.measured)} plans of {len(kernels)} kernels"]
    lines.append(" " * 34 + "".join(f"{word:>12}" for word in columns))
    for index, constant in enumerate(FITTED):
        numbers = "".join(f"{each[index]:12.4g}" for each in columns.values())
        lines.append(f"  {constant:32}{numbers}")
    errors = [np.abs(plans.estimates(each) / plans.truth - 1) for each in columns.values()]
    for word, of in (("mean", np.mean), ("worst", np.max)):
        numbers = "".join(f"{of(one):12.1%}" for one in errors)
        lines.append(f"  {'estimate against time, ' + word:32}{numbers}")
    for (network, precision), by_images in losses(plans, plans.table()).items():
        lost = ", ".join(f"{loss:.1%} of {int(images):,}" for images, loss in by_images.items())
        lines.append(f"  {network} {precision}, chosen against fastest: {lost} images")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", type=Path, nargs="?", default=PLANS)
    document = json.loads(parser.parse_args().plans.read_text())
    print(report("tensor cores", plans_of(document, tensor=True)))
    print(report("multiply-adds", plans_of(document, tensor=False)))


if __name__ == "__main__":
    main()
