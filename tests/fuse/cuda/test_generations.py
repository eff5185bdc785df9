"""The table of GPU generations, and the fit that it came from."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from benchmarks.cpu import networks
from benchmarks.fit import PLANS, Plans, fit, losses, plans_of
from benchmarks.plans import NETWORKS

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER, generation
from tilewright.fuse.cuda.stack import Stack
from tilewright.runtime.dialect import DoesNotFit

# Fits since a narrow column counts for as many registers as it has. It took 5.59 ms, of 10,000
# images (`benchmarks/results/2026-11-18-kernels-h200.txt`), the fastest in the file 5.69.
SINCE = ("ece408", "fp32", 0, 2, 16, 1, ((6, 2), (9, 1)))


@pytest.mark.parametrize(
    "capability, found", [(80, 80), (87, 86), (90, 90), (103, 100), (121, 120)]
)
def test_the_nearest_older_generation(capability: int, found: int) -> None:
    assert generation(capability) is GENERATIONS[found]


def test_what_is_too_old_is_said() -> None:
    with pytest.raises(DoesNotFit, match=r"^sm_75 has no tensor cores that add in float32"):
        generation(75)


@pytest.fixture(scope="module", params=[True, False], ids=["tensor cores", "multiply-adds"])
def plans(request: pytest.FixtureRequest) -> Plans:
    return plans_of(json.loads(PLANS.read_text()), request.param)


def test_the_table_chooses_as_well_as_it_says(plans: Plans) -> None:
    """The figures in the table's comments: within 1 % of the fastest, but for one network each."""
    found = {(*network, images): loss for network, of in losses(plans, plans.table()).items()
             for images, loss in of.items()}  # fmt: skip
    far = {each: loss for each, loss in found.items() if loss > 0.01}
    if plans.tensor:
        assert len(plans.measured) == 224 and len(found) == 12
        assert far.keys() == {("cifar10", "fp16", images) for images in ("10000", "50000")}
    else:
        assert len(plans.measured) == 112 and len(found) == 6
        assert far.keys() == {("lenet5", "fp32", images) for images in ("10000", "50000")}
    assert max(far.values()) == pytest.approx(0.048 if plans.tensor else 0.057, abs=0.0006)
    error = np.abs(plans.estimates(plans.table()) / plans.truth - 1).mean()
    assert error == pytest.approx(0.189 if plans.tensor else 0.077, abs=0.0006)


def test_the_planner_takes_what_was_fast() -> None:
    """Of all plans, not of those that were timed alone."""
    document = json.loads(PLANS.read_text())
    timed = {(row["network"], row["precision"], row["first"], row["operations"], row["warps"],
              row["groups"], tuple((one["rows"], one["columns"]) for one in row["sums"]))
             for row in document["plans"]}  # fmt: skip
    precisions = sorted({row["precision"] for row in document["plans"]})
    known = {each.name: each for each in networks()}
    for name, precision in itertools.product(NETWORKS, precisions):
        stages, arithmetic = known[name].stages, ARITHMETICS[precision]
        for plan in cut(stages, arithmetic, 90):
            if isinstance(plan, Stack):
                units = tuple((each.shares.rows, each.shares.columns) for each in plan.sums
                              if each.shares)  # fmt: skip
                first = plan.operations[0].index
                found = (name, precision, first, len(plan.phases), plan.warps, plan.groups, units)
                assert found in timed or found == SINCE


def test_the_fit_estimates_as_the_code_does(plans: Plans) -> None:
    """Estimates from what each constant counts for are those that plans are chosen by."""
    found = plans.estimates(plans.table())
    moved = np.array([each.moved_words for each in plans.measured]) / HOPPER.words_a_cycle
    truth = np.array([each.plan.cycles(HOPPER) for each in plans.measured])
    np.testing.assert_allclose(found, truth + HOPPER.launch_cycles + moved)


def test_the_fit_is_nearer_to_times_than_the_table(plans: Plans) -> None:
    def miss(constants: np.ndarray) -> float:
        apart = np.log(plans.estimates(constants) / plans.truth) * plans.near
        return float(np.square(apart).sum())

    assert miss(fit(plans, rounds=40)) < miss(plans.table())
