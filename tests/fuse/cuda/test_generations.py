"""The table of GPU generations, and the fit that it came from."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import whole as whole_networks
from benchmarks.cpu import networks
from benchmarks.fit import FITTED, PLANS, STRIPS, Plans, fit, kernel_losses, losses, plans_of
from benchmarks.plans import NETWORKS

from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import all_stacks
from tilewright.fuse.cuda.cut import build, choose, cost_of, cut, few_of, for_few, with_few
from tilewright.fuse.cuda.few import stack_cycles
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER, generation
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    SiLU,
    Tanh,
)
from tilewright.model.network import Network
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
    return plans_of(PLANS, request.param)


def test_the_table_chooses_as_well_as_it_says(plans: Plans) -> None:
    """The figures in the table's comments."""
    table = plans.table()
    lost = kernel_losses(plans, table)
    sizes = (1819, 415) if plans.tensor else (1100, 259)
    assert (len(plans.measured), len(lost)) == sizes
    assert all(len({len(plans.measured[one].plan.phases) for one in each}) == 1
               for each in plans.kernels)  # fmt: skip
    assert np.mean(lost) == pytest.approx(0.027 if plans.tensor else 0.021, abs=0.0006)
    assert max(lost) == pytest.approx(0.44 if plans.tensor else 0.22, abs=0.006)
    error = np.abs(plans.estimates(table) / plans.truth - 1).mean()
    assert error == pytest.approx(0.152 if plans.tensor else 0.103, abs=0.0006)
    whole = [loss for of in losses(plans, table).values() for loss in of.values()]
    assert max(whole) == pytest.approx(0.002 if plans.tensor else 0.027, abs=0.0006)


def test_the_planner_takes_what_was_fast() -> None:
    """Of all plans, not of those that were timed alone."""
    rows = [row for file in PLANS for row in json.loads(file.read_text())["plans"]]
    timed = {(row["network"], row["precision"], row["first"], row["operations"], row["warps"],
              row["groups"], tuple((one["rows"], one["columns"]) for one in row["sums"]))
             for row in rows}  # fmt: skip
    known = {each.name: each for each in networks()}
    for name, precision in itertools.product(NETWORKS, ("fp16", "tf32", "fp32")):
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
    costs = [cost_of(each.plan, HOPPER) for each in plans.measured]
    np.testing.assert_allclose(plans.estimates(plans.table()), costs)
    twice = plans.table()
    twice[STRIPS] *= 2
    strips = np.array([each.plan.strip is not None for each in plans.measured])
    longer = plans.estimates(twice) > np.multiply(costs, 1.001)
    assert strips.any() and (longer == strips).all()
    assert FITTED[STRIPS] == "strips"


def test_the_fit_is_nearer_to_times_than_the_table(plans: Plans) -> None:
    def miss(constants: np.ndarray) -> float:
        apart = np.log(plans.estimates(constants) / plans.truth) * plans.near
        return float(np.square(apart).sum())

    assert miss(fit(plans, rounds=40)) < miss(plans.table())


def test_activations_count_where_they_are_taken() -> None:
    """Of a maximum once, if they keep order; of a mean four times."""

    def activated(*layers: Layer) -> float:
        network = Network("net", Pixels((3, 8, 8)), (Convolution(4, 3, padding=1), *layers))
        (only,) = to_do(network.stages, HOPPER)
        return only.activated

    outputs = 4 * 8 * 8
    assert activated(Tanh()) == Tanh.cycles * outputs
    assert activated(Tanh(), MaxPool(2)) == Tanh.cycles * outputs / 4
    assert activated(SiLU(), MaxPool(2)) == SiLU.cycles * outputs
    assert activated(Tanh(), AveragePool(2)) == Tanh.cycles * outputs
    assert activated(MaxPool(2), SiLU()) == SiLU.cycles * outputs / 4
    assert activated(ReLU()) == 0


def test_writing_costs_more_where_lines_are_not_written_as_a_whole() -> None:
    """A warp that has some of the filters writes them long before others: not so where all have
    the same positions. Of halves, what makes no pairs costs more, too."""

    def each_word(precision: str, filters: int, warps: int, columns: int) -> float:
        network = Network("net", Pixels((16, 16, 16)), (Convolution(filters, 3, padding=1),))
        (only,) = to_do(network.stages, HOPPER)
        todo = [replace(only, gives="words", only_sums=True)]
        plan = next(
            plan for plan, _ in all_stacks(ARITHMETICS[precision], (0, (todo, None)), HOPPER)
            if plan.warps == warps
        )  # fmt: skip
        (phase,) = plan.phases
        assert phase.shares
        phase = replace(phase, shares=replace(phase.shares, columns=columns))
        return replace(plan, phases=(phase,)).moved(HOPPER) / plan.result_words

    plain, tensor = HOPPER.plain, HOPPER.tensor
    assert each_word("fp32", 32, 1, 2) == pytest.approx(plain.written + plain.late)
    assert each_word("fp32", 32, 2, 2) == each_word("fp32", 32, 1, 4) == plain.written
    assert each_word("fp16", 40, 2, 5) == pytest.approx(tensor.written + tensor.odd)
    assert each_word("fp16", 32, 2, 4) == tensor.written


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
