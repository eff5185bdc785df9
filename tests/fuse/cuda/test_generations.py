"""The table of GPU generations, and the fit that it came from."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from benchmarks import whole as whole_networks
from benchmarks.cpu import networks
from benchmarks.fit import PLANS, Plans, fit, losses, plans_of
from benchmarks.plans import NETWORKS

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import build, choose, cut, few_of, for_few, with_few
from tilewright.fuse.cuda.few import stack_cycles
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER, generation
from tilewright.fuse.cuda.stack import Stack
from tilewright.runtime.dialect import DoesNotFit


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
    """The figures in the table's comments."""
    found = [loss for of in losses(plans, plans.table()).values() for loss in of.values()]
    assert (len(plans.measured), len(found)) == ((224, 12) if plans.tensor else (113, 6))
    assert max(found) == pytest.approx(0.013 if plans.tensor else 0.027, abs=0.0006)
    error = np.abs(plans.estimates(plans.table()) / plans.truth - 1).mean()
    assert error == pytest.approx(0.208 if plans.tensor else 0.080, abs=0.0006)


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
                assert found in timed


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


@pytest.fixture(scope="module", params=[True, False], ids=["tensor cores", "multiply-adds"])
def whole(request: pytest.FixtureRequest) -> whole_networks.Fit:
    rows = json.loads(whole_networks.MEASURED.read_text())["rows"]
    return whole_networks.Fit(rows, request.param)


def test_one_kernel_for_few_images_is_chosen_as_well_as_it_is_said(
    whole: whole_networks.Fit,
) -> None:
    lost = list(whole.losses(whole.table()).values())
    assert (len(whole.rows), len(lost)) == ((156, 16) if whole.tensor else (50, 8))
    assert np.mean(lost) == pytest.approx(0.003 if whole.tensor else 0.018, abs=0.0006)
    assert max(lost) == pytest.approx(0.029 if whole.tensor else 0.059, abs=0.0006)
    error = np.abs(whole.estimates(whole.table()) / whole.cycles - 1).mean()
    assert error == pytest.approx(0.063 if whole.tensor else 0.241, abs=0.0006)


def test_that_fit_estimates_as_the_code_does(whole: whole_networks.Fit) -> None:
    names = "network", "precision", "warps", "groups", "weight"
    plans = [whole_networks.Arranged(*(row[name] for name in names)).plan for row in whole.rows]
    truth = [stack_cycles(plan, 1, for_few(HOPPER)) for plan in plans if plan]
    np.testing.assert_allclose(whole.estimates(whole.table()), truth)


def test_one_image_of_a_small_network_is_one_group() -> None:
    known = {each.name: each for each in networks()}
    for name, precision in itertools.product(("cifar10", "lenet5", "strided"), ("fp16", "tf32")):
        stages, arithmetic = known[name].stages, ARITHMETICS[precision]
        choice = with_few(choose(stages, arithmetic, 90), stages, arithmetic, 90)
        (plan,) = build(stages, arithmetic, 90, choice, few_of(choice, 1))
        # The only kernel for many images may be as good.
        many = build(stages, arithmetic, 90, choice)
        assert isinstance(plan, Stack) and (plan.groups == 1 or [plan] == many)
