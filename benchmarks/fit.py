"""The constants behind the choice of a whole-network kernel's plan, fitted to measured plans.

    python -m benchmarks.fit [benchmarks/results/DATE-plans-h200.json ...]

Needs no GPU: plans and their times are in the files. Each measured plan is built once more from its
units, and its estimate (`cut.cost_of`) compared with the time that it took. The fit, the least
squares of the logarithms with plans near the fastest of their kernel counting most, is printed
beside the table (`tilewright.fuse.cuda.generations`); and, drawn at random from there, one to
choices: kernels by the least estimate take as little longer than by the fastest plan as can be.
Below: how far estimates are from times, and how much longer what is chosen takes, of every kernel;
the same where each fifth of the networks is left out and estimated by a fit to the others; and
what the table chooses for the networks whose every cut was timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.builds import every_network
from benchmarks.plans import AS_CUT
from numpy.typing import NDArray

from tilewright.fuse.cuda import fold
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import divisions
from tilewright.fuse.cuda.generations import HOPPER, Generation, Rates
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.stack import Phase, Stack, Taken
from tilewright.fuse.cuda.sums import Shares, planes, source_picture
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.network import Network
from tilewright.runtime.multiprocessor import REFERENCE

RESULTS = Path(__file__).parent / "results"
PLANS = (RESULTS / "2026-11-18-plans-h200.json", RESULTS / "2026-11-20-plans-as-cut-h200.json")
# All but of windows that stick out: the plans have none.
FITTED = tuple(field.name for field in fields(Rates) if field.name != "window")
STRIPS = FITTED.index("strips")  # by which all else is multiplied
# Where the fit begins: the size of each constant, roughly.
ROUGH = {
    "product": 1, "twice": 1, "together": 1, "read": 0.5, "weights": 0.5, "result": 3,
    "activation": 1, "each": 0.1, "channel": 0.1, "distant": 0.05, "filled": 4, "own_product": 5,
    "own_together": 5, "own_step": 30, "own_unit": 300, "own_distant": 100, "own_activation": 1,
    "own_each": 20, "fill": 100, "strips": 1, "written": 0.2, "late": 0.1, "odd": 0.1,
}  # fmt: skip
TYPICAL = "10000"  # images, that estimates are fitted for
LITTLE = 3000  # cycles of an image: 12 µs of 1,000
FOLDS = 5
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A plan that was timed: of what layers, and how the network was cut (operations of its first
    kernel; `AS_CUT` if it is one of those that were chosen)."""

    network: str
    precision: str
    cut: int
    first: int
    plan: Stack
    milliseconds: dict[str, float]  # by images

    @property
    def kernel(self) -> tuple[str, str, int, int, int]:
        return self.network, self.precision, self.cut, self.first, len(self.plan.phases)

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
    def counts(self) -> tuple[Array, Array, Array]:
        """Work, wait and what is outside of every plan: what each constant adds, and last what
        there is without any.

        All are linear in the constants, so the code is asked with one of them 1, all others 0.
        """
        nothing = replace(self.rates, **dict.fromkeys(FITTED, 0.0))
        every = [self.with_rates(replace(nothing, **{name: 1.0})) for name in FITTED]
        every.append(self.with_rates(nothing))
        plans = [each.plan for each in self.measured]
        found = np.array([[(p.work(one), p.wait(one), p.moved(one)) for one in every]
                          for p in plans])  # fmt: skip
        found[:, :-1] -= found[:, -1:]
        return found[..., 0], found[..., 1], found[..., 2]

    @property
    def rates(self) -> Rates:
        return HOPPER.tensor if self.tensor else HOPPER.plain

    def with_rates(self, rates: Rates) -> Generation:
        return replace(HOPPER, **{"tensor" if self.tensor else "plain": rates})

    @cached_property
    def groups(self) -> Array:
        return np.array([each.plan.groups for each in self.measured])

    @cached_property
    def strips(self) -> Array:
        """Of an image; 0 if it is taken as a whole."""
        return np.array([len(each.plan.strip.starts) if each.plan.strip else 0
                         for each in self.measured])  # fmt: skip

    def estimates(self, constants: Array) -> Array:
        work, wait, outside = (each @ np.append(constants, 1.0) for each in self.counts)
        parts = np.where(self.strips, constants[STRIPS] * self.strips, 1.0)
        found: Array = parts * np.hypot(work, wait / self.groups) + outside
        return found + HOPPER.launch_cycles

    def table(self) -> Array:
        rates = asdict(self.rates)
        return np.array([rates[name] or 0.0 for name in FITTED])

    @cached_property
    def kernels(self) -> list[Array]:
        """The plans of each kernel, by their numbers."""
        found: dict[object, list[int]] = defaultdict(list)
        for number, each in enumerate(self.measured):
            found[each.kernel].append(number)
        return [np.array(each) for each in found.values() if len(each) > 1]

    @cached_property
    def near(self) -> Array:
        """How much a plan counts: those near the fastest of their kernel most, and all of a kernel
        less where they are many, or take next to nothing."""
        found = np.zeros(len(self.measured))
        for each in self.kernels:
            least = self.truth[each].min()
            found[each] = (least / self.truth[each]) ** 2 / np.sqrt(len(each))
            found[each] *= min(1.0, least / LITTLE)
        return found

    def of(self, names: set[str]) -> Plans:
        """Those of some networks."""
        return Plans([each for each in self.measured if each.network in names], self.tensor)


def fit(plans: Plans, rounds: int = 200) -> Array:
    """Least squares of logarithms: damped steps of Gauss and Newton.

    Constants are counted in their rough sizes; one that would be negative is zero.
    """
    rough = np.array([ROUGH[name] for name in FITTED])
    constants, damping = np.ones_like(rough), 1e-2
    target = np.log(plans.truth)

    def misses(each: Array) -> Array:
        found: Array = (np.log(plans.estimates(each * rough)) - target) * plans.near
        return found

    miss = misses(constants)
    for _ in range(rounds):
        slopes = np.stack(
            [(misses(constants + 1e-6 * unit) - miss) / 1e-6 for unit in np.eye(len(rough))], -1
        )
        normal = slopes.T @ slopes
        damped = normal + damping * np.diag(np.diag(normal) + 1e-9)
        tried = np.maximum(constants - np.linalg.solve(damped, slopes.T @ miss), 0.0)
        found = misses(tried)
        if found @ found < miss @ miss:
            constants, miss, damping = tried, found, damping / 3
        else:
            damping *= 4
    return constants * rough


def fit_choices(plans: Plans, start: Array, draws: int = 8000) -> Array:
    """From there at random to constants by which better plans are chosen, none of them much worse
    than the fastest; else nearer to times."""
    generator = np.random.default_rng(0)

    def cost(each: Array) -> float:
        lost = kernel_losses(plans, each)
        whole = [loss for of in losses(plans, each).values() for loss in of.values()]
        error = np.average(np.abs(np.log(plans.estimates(each) / plans.truth)), weights=plans.near)
        return float(lost.mean() + 0.05 * lost.max() + 0.2 * max(whole, default=0) + 0.05 * error)

    best, least = start, cost(start)
    for _ in range(draws):
        step = generator.normal(0, generator.choice([0.03, 0.1, 0.3]), len(start))
        tried = best * np.exp(step * (generator.random(len(start)) < 0.3))
        if generator.random() < 0.1:  # one that was zero may be more
            one = generator.integers(len(start))
            tried[one] = 1.5 * generator.random() * ROUGH[FITTED[one]]
        if (found := cost(tried)) < least:
            best, least = tried, found
    return best


def kernel_losses(plans: Plans, constants: Array) -> Array:
    """How much longer what is chosen of each kernel's plans takes than the fastest."""
    estimates, truth = plans.estimates(constants), plans.truth
    return np.array([truth[each[np.argmin(estimates[each])]] / truth[each].min() - 1
                     for each in plans.kernels])  # fmt: skip


def left_out(plans: Plans) -> tuple[Array, Array]:
    """Losses of kernels, and errors of estimates, of networks that the fit has not seen."""
    names = sorted({each.network for each in plans.measured})
    np.random.default_rng(0).shuffle(names)
    lost, errors = [], []
    for part in range(FOLDS):
        out = set(names[part::FOLDS])
        known, unseen = plans.of(set(names) - out), plans.of(out)
        constants = fit(known)
        lost.append(kernel_losses(unseen, constants))
        errors.append(np.abs(unseen.estimates(constants) / unseen.truth - 1))
    return np.concatenate(lost), np.concatenate(errors)


def losses(plans: Plans, constants: Array) -> dict[tuple[str, str], dict[str, float]]:
    """How much longer what is chosen takes than the fastest, by network and images, where every
    cut was timed."""
    cuts: dict[tuple[str, str], dict[int, dict[int, list[tuple[float, Measured]]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for each, estimate in zip(plans.measured, plans.estimates(constants), strict=True):
        if each.cut != AS_CUT:
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


def plans_of(files: Iterable[Path], tensor: bool) -> Plans:
    known = every_network()
    rows = [row for file in files for row in json.loads(file.read_text())["plans"]]
    return Plans([_measured(row, known[row["network"]]) for row in rows
                  if ARITHMETICS[row["precision"]].tensor == tensor], tensor)  # fmt: skip


def _measured(row: dict[str, Any], network: Network) -> Measured:
    first, arithmetic = row["first"], ARITHMETICS[row["precision"]]
    todo: Sequence[Operation] = to_do(network.stages, HOPPER)[first : first + row["operations"]]
    gives, (channels, height, width) = todo[-1].gives, todo[0].shapes[0]
    given = arithmetic.words(channels) * height * width if first else 0
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
            phases.append(Phase(operation, source, None, planes(operation.result),
                                reads=(Taken(True, 0),)))  # fmt: skip
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
        arithmetic, tuple(phases), row["warps"], row["groups"], todo[0].forms[0], gives,
        row["moved"] - given, row["staged"], strip, (todo[0].takes[0],), (), (todo[0].shapes[0],),
        held=row["held"],
    )  # fmt: skip
    times = {images: statistics.median(each) for images, each in row["ms"].items()}
    return Measured(network.name, row["precision"], row["cut"], first, plan, times)


def report(name: str, plans: Plans) -> str:
    times = fit(plans)
    columns = {"table": plans.table(), "to times": times, "to choices": fit_choices(plans, times)}
    lines = [f"{name}: {len(plans.measured)} plans of {len(plans.kernels)} kernels"]
    lines.append(" " * 34 + "".join(f"{word:>12}" for word in columns))
    for index, constant in enumerate(FITTED):
        numbers = "".join(f"{each[index]:12.4g}" for each in columns.values())
        lines.append(f"  {constant:32}{numbers}")
    errors = [np.abs(plans.estimates(each) / plans.truth - 1) for each in columns.values()]
    lost = [kernel_losses(plans, each) for each in columns.values()]
    for what, figures in (("estimate against time", errors), ("chosen against fastest", lost)):
        for word, of in (("mean", np.mean), ("worst", np.max)):
            numbers = "".join(f"{of(one):12.1%}" for one in figures)
            lines.append(f"  {f'{what}, {word}':32}{numbers}")
    unseen, error = left_out(plans)
    lines.append(f"  networks left out: estimates {error.mean():.1%} off, chosen against fastest "
                 f"{unseen.mean():.1%}, worst {unseen.max():.1%}")  # fmt: skip
    for (network, precision), by_images in losses(plans, plans.table()).items():
        of_images = (f"{loss:.1%} of {int(images):,}" for images, loss in by_images.items())
        lines.append(f"  {network} {precision}: {', '.join(of_images)} images")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", type=Path, nargs="*", default=PLANS)
    given = parser.parse_args()
    print(report("tensor cores", plans_of(given.plans, tensor=True)))
    print(report("multiply-adds", plans_of(given.plans, tensor=False)))


if __name__ == "__main__":
    main()
