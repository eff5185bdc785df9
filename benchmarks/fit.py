"""The constants behind the choice of a whole-network kernel's plan, fitted to measured plans.

    python -m benchmarks.fit [benchmarks/results/2026-11-15-plans-h200.json]

Needs no GPU: plans and their times are in the file. Each measured plan is built once more from its
units, and its estimate (`Stack.cycles`) compared with the time that it took. Two fits are printed
beside the table (`tilewright.fuse.cuda.generations`): to times, the least squares of the
logarithms; and from there to choices, so that the plan with the least estimate is as near to the
fastest of its kernel as can be. Below, for all three: how far estimates are from times, and how
much slower the chosen plan is than the fastest.

An estimate is there to choose by, and the fit to times chooses worse than the table, which was
found by hand with an eye on both. The fit to choices has as many constants as kernels: it shows
what could be had, and is to be believed only with more networks timed.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.cpu import networks
from numpy.typing import NDArray

from tilewright.fuse.cuda.arithmetic import ARITHMETICS, Arithmetic
from tilewright.fuse.cuda.arrange import divisions
from tilewright.fuse.cuda.generations import HOPPER, Generation, Rates
from tilewright.fuse.cuda.operations import Operation, operations
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.stack import Phase, Stack
from tilewright.fuse.cuda.sums import Shares, planes, source_picture
from tilewright.runtime.multiprocessor import REFERENCE

PLANS = Path(__file__).parent / "results" / "2026-11-15-plans-h200.json"
# Constants of `Rates` that are fitted; `distant_words` was chosen.
FITTED = tuple(field.name for field in fields(Rates) if field.name != "distant_words")
IMAGE = ("image_work", "image_wait")
# Where the fit begins: the size of each constant of FITTED and IMAGE, roughly.
ROUGH = np.array([1.0, 0.1, 10, 10, 100, 100, 1000, 1000])
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A plan that was timed; `kernel` names what it computes."""

    kernel: str
    plan: Stack
    milliseconds: float
    images: int

    @property
    def cycles(self) -> float:
        """Of a multiprocessor, an image: what `Stack.cycles` estimates."""
        return self.milliseconds * 1e-3 * REFERENCE.hertz * REFERENCE.processors / self.images


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
        nothing = Rates(*[0.0] * len(FITTED), distant_words=self.rates(HOPPER).distant_words)
        bare = self.with_rates(replace(HOPPER, image_work=0, image_wait=0), nothing)
        ones = [self.with_rates(bare, replace(nothing, **{name: 1.0})) for name in FITTED]
        ones += [replace(bare, **{name: 1.0}) for name in IMAGE]
        work, wait = (
            np.array([[part(each.plan, one) for one in ones] for each in self.measured])
            for part in (_work, _wait)
        )
        fixed = np.array([_work(each.plan, bare) for each in self.measured])
        return work - fixed[:, None], wait, fixed, np.array([_parts(m.plan) for m in self.measured])

    def rates(self, generation: Generation) -> Rates:
        return generation.rates(self.tensor)

    def with_rates(self, generation: Generation, rates: Rates) -> Generation:
        return replace(generation, **{"tensor" if self.tensor else "plain": rates})

    def estimates(self, constants: Array) -> Array:
        work, wait, fixed, parts = self.counts
        groups = np.array([each.plan.groups for each in self.measured])
        return parts * np.hypot(fixed + work @ constants, wait @ constants / groups)

    def table(self) -> Array:
        rates = asdict(self.rates(HOPPER))
        return np.array([*(rates[name] for name in FITTED), *(getattr(HOPPER, n) for n in IMAGE)])

    def losses(self, estimates: Array) -> dict[str, float]:
        """How much slower than the fastest the plan with the least estimate is, by kernel."""
        rows: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for each, estimate in zip(self.measured, estimates, strict=True):
            rows[each.kernel].append((float(estimate), each.milliseconds))
        return {
            kernel: min(each)[1] / min(ms for _, ms in each) - 1 for kernel, each in rows.items()
        }


def _parts(plan: Stack) -> int:
    return len(plan.strip.starts) if plan.strip else 1


def _work(plan: Stack, generation: Generation) -> float:
    return generation.image_work + sum(phase.work(generation) for phase in plan.phases)


def _wait(plan: Stack, generation: Generation) -> float:
    return generation.image_wait + sum(p.wait(plan.warps, generation) for p in plan.phases)


def fit_times(plans: Plans, rounds: int = 300) -> Array:
    """Least squares of logarithms: damped steps of Gauss and Newton.

    Constants are counted in their rough sizes; one that would be negative is zero.
    """
    constants, damping = np.ones_like(ROUGH), 1e-2
    target = np.log(plans.truth)

    def misses(each: Array) -> Array:
        return np.log(plans.estimates(each * ROUGH)) - target

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


def fit_choices(plans: Plans, start: Array) -> Array:
    """One constant after the other made larger or smaller, as long as better plans are chosen."""

    def cost(each: Array) -> tuple[float, float]:
        estimates = plans.estimates(each)
        losses = list(plans.losses(estimates).values())
        error = np.abs(np.log(estimates / plans.truth)).mean()
        return float(np.mean(losses) + max(losses)), float(error)

    best, least = start, cost(start)
    while True:
        tried = [
            np.where(np.arange(len(best)) == index, factor * best + more * ROUGH, best)
            for index in range(len(best))
            for factor, more in (
                (0.5, 0),
                (0.8, 0),
                (0.9, 0),
                (1.1, 0),
                (1.25, 0),
                (2, 0.1),
                (0, 0),
            )
        ]
        costs = [cost(each) for each in tried]
        if min(costs) >= least:
            return best
        least = min(costs)
        best = tried[costs.index(least)]


def plans_of(document: dict[str, Any], tensor: bool) -> Plans:
    """The plans whose kernels were what the code still generates (see the file's `about`)."""
    if tensor:
        rows = [
            row
            for row in [*document["first"], *document["around_the_best"]]
            if ARITHMETICS[row["precision"]].tensor and row["steps_written_out"] > 1
        ]
    else:
        rows = [row for row in document["two_words"] if row["precision"] == "fp32"]
    return Plans([_measured(row) for row in rows], tensor)


def _measured(row: dict[str, Any]) -> Measured:
    network = next(each for each in networks() if each.name == row["network"])
    arithmetic, images = (
        ARITHMETICS[row["precision"]],
        20_000 if network.name == "cifar10" else 5000,
    )
    kernel = f"{network.name} {row['precision']} {row['kernel']}"
    todo = _layers(operations(network.stages), row)
    if row["strips"] > 1:
        todo, strip = next(
            (parts, strip)
            for parts, strip in divisions(todo)
            if strip and len(strip.starts) == row["strips"]
        )
    else:
        strip = None
    sums = iter(zip(row["units"], row["weights_in_shared_memory"], strict=True))
    phases = []
    for operation in todo:
        loaded = row["kernel"] == 0 and not phases
        phases.append(_phase(arithmetic, operation, loaded, sums))
    plan = Stack(
        arithmetic, tuple(phases), row["warps"], row["groups"], "pixels", "output", 0, 0, strip
    )
    return Measured(kernel, plan, row["ms"], images)


def _layers(todo: Sequence[Operation], row: dict[str, Any]) -> Sequence[Operation]:
    """A kernel of one sum was the convolution of that number; others have all up to a large row."""
    if len(row["units"]) == 1:
        return [[each for each in todo if each.kind == "sum"][row["kernel"]]]
    found = []
    for operation in todo:
        if operation.connected and operation.weights > HOPPER.most_connected:
            break
        found.append(operation)
    return found


def _phase(arithmetic: Arithmetic, operation: Operation, loaded: bool, sums: Any) -> Phase:
    sink = planes(operation.result)
    if operation.kind != "sum":
        return Phase(operation, plain(arithmetic, operation.source), None, sink)
    (rows, columns, units), shared = next(sums)
    shares = Shares(operation.geometry, arithmetic, rows, columns)
    if shares.units != units:
        raise SystemExit(f"{operation.names[0]}: {shares.units} units where {units} were timed")
    source = source_picture(shares, loaded, HOPPER.unaligned)
    return Phase(operation, source, None, sink, shares, shared)


def report(name: str, plans: Plans) -> str:
    times = fit_times(plans)
    columns = {"table": plans.table(), "to times": times, "to choices": fit_choices(plans, times)}
    lines = [f"{name}: {len(plans.measured)} plans of {len(plans.losses(plans.truth))} kernels"]
    lines.append(" " * 34 + "".join(f"{word:>12}" for word in columns))
    for index, constant in enumerate((*FITTED, *IMAGE)):
        numbers = "".join(f"{each[index]:12.4g}" for each in columns.values())
        lines.append(f"  {constant:32}{numbers}")
    estimates = [plans.estimates(each) for each in columns.values()]
    errors = [np.abs(each / plans.truth - 1) for each in estimates]
    losses = [np.array(list(plans.losses(each).values())) for each in estimates]
    for what, each in (("estimate against time", errors), ("chosen against fastest", losses)):
        for word, of in (("mean", np.mean), ("worst", np.max)):
            numbers = "".join(f"{of(one):12.1%}" for one in each)
            lines.append(f"  {what + ', ' + word:32}{numbers}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plans", type=Path, nargs="?", default=PLANS)
    document = json.loads(parser.parse_args().plans.read_text())
    print(report("tensor cores", plans_of(document, tensor=True)))
    print(report("multiply-adds", plans_of(document, tensor=False)))


if __name__ == "__main__":
    main()
