"""Networks that pass values on: nothing saturates, nothing is lost, bounds stay tight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import networks
from tilewright.model import zoo
from tilewright.precision import FLOAT32, FP16, TF32, TF32X3
from tilewright.truth import isolation, reference

PRECISIONS = (FLOAT32, TF32, TF32X3, FP16)


def ready(network, given):
    return network.with_parameters({n: v.astype(np.float32) for n, v in given.items()})


@pytest.mark.parametrize("kind", isolation.KINDS)
@pytest.mark.parametrize("precision", PRECISIONS, ids=lambda precision: precision.name)
@pytest.mark.parametrize("name", ["cifar10", "ece408-2017"])
def test_the_bound_at_the_end_is_tight(name, precision, kind):
    """Where weights as they are trained leave a probability anywhere between 0 and 1."""
    network = zoo.network(name)
    generator = np.random.default_rng(1)
    for stage in network.stages:
        if not stage.parameter_shapes:
            continue
        given = isolation.alone(network, stage, kind, precision, generator)
        images = isolation.images(network, kind, 1, precision, generator)
        truth = reference.chain(network.stages, ready(network, given).parameters, images, precision)
        share = truth[-1].bound / truth[-1].value
        # Sums of thousands behind a tanh, and the roundings of fp16 and TF32, are what remains.
        assert np.median(share) < (0.01 if precision is FLOAT32 else 0.25)


@given(networks(), st.integers(0, 2**32 - 1), st.booleans())
def test_values_stay_within_reach(network, seed, sums):
    generator = np.random.default_rng(seed)
    given = isolation.passing(network, generator, sums)
    images = isolation.images(network, "sparse", 2, FLOAT32, generator)
    truths = reference.chain(network.stages, ready(network, given).parameters, images)
    for stage, truth in zip(network.stages, truths, strict=True):
        scores = network.stages[-1].kind == "softmax" and stage.index == len(network.stages) - 2
        layers = sum(bool(each.parameter_shapes) for each in network.stages)
        assert np.abs(truth.value).max() <= (1 + layers / 4) * (isolation.SPREAD if scores else 1)


@given(networks(), st.integers(0, 2**32 - 1))
def test_sums_take_in_every_input(network, seed):
    generator = np.random.default_rng(seed)
    for name, value in isolation.passing(network, generator, sums=True).items():
        if name.endswith("weight"):
            taken = value.reshape(*value.shape[:2], -1).any(2)
            assert taken.any(0).all(), "an input that no output takes"
            assert taken.any(1).all(), "an output that takes no input"


def test_pixels_of_any_scale_are_brought_within_one():
    network = zoo.network("ece408-2017")
    given = isolation.passing(network, np.random.default_rng(0), sums=False)
    made = isolation.within_one(network, given, 255.0)
    assert np.abs(made["conv.weight"]).max() == 1 / 256
    np.testing.assert_array_equal(made["fc1.weight"], given["fc1.weight"])
