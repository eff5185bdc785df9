"""What the verifier tries is within the range of the arithmetic that it tries."""

from __future__ import annotations

import numpy as np

from tilewright.precision import FP16
from tilewright.truth import odd, reference, trials


def test_products_of_whole_numbers_are_numbers_in_halves():
    """What is between layers is kept in halves, which end at 65,504."""
    (gated,) = (network for network in odd.GRAPHS if network.name == "gated")
    for seed in range(40):
        trial = next(iter(trials._network_trials(gated, FP16, np.random.default_rng(seed))))
        truths = reference.chain(gated.stages, trial.network.parameters, trial.images, FP16)
        assert all((np.abs(each.value) + each.bound).max() < FP16.largest for each in truths[:-1])
