"""The table of GPU generations, and the fit that it came from."""

from __future__ import annotations

import json

import numpy as np
import pytest
from benchmarks.fit import PLANS, Plans, fit_times, plans_of

from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER, generation
from tilewright.runtime.dialect import DoesNotFit


@pytest.mark.parametrize("capability, found", [(80, 80), (87, 86), (90, 90), (103, 100)])
def test_the_nearest_older_generation(capability: int, found: int) -> None:
    assert generation(capability) is GENERATIONS[found]


def test_what_is_too_old_is_said() -> None:
    with pytest.raises(DoesNotFit, match=r"^sm_75 has no tensor cores that add in float32"):
        generation(75)


@pytest.fixture(scope="module", params=[True, False], ids=["tensor cores", "multiply-adds"])
def plans(request: pytest.FixtureRequest) -> Plans:
    return plans_of(json.loads(PLANS.read_text()), request.param)


def test_the_table_chooses_as_well_as_it_says(plans: Plans) -> None:
    """The figures in the table's comments and in docs/ladder.md."""
    losses = list(plans.losses(plans.estimates(plans.table())).values())
    mean, worst, count = (0.046, 0.180, 311) if plans.tensor else (0.136, 0.330, 45)
    assert len(plans.measured) == count
    assert np.mean(losses) == pytest.approx(mean, abs=0.0006)
    assert max(losses) == pytest.approx(worst, abs=0.0006)


def test_the_fit_estimates_as_the_code_does(plans: Plans) -> None:
    """Estimates from what each constant counts for are those that plans are chosen by."""
    found = plans.estimates(plans.table())
    truth = [each.plan.cycles(HOPPER) for each in plans.measured]
    np.testing.assert_allclose(found, truth)


def test_the_fit_is_nearer_to_times_than_the_table(plans: Plans) -> None:
    def miss(constants: np.ndarray) -> float:
        return float(np.square(np.log(plans.estimates(constants) / plans.truth)).sum())

    assert miss(fit_times(plans)) < miss(plans.table())
