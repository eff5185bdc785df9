from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.machines import TARGETS
from tests.strategies import every_network
from tilewright.fuse.cpu.few import phases
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_channels
from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.truth.trials import random_parameters

LARGE = Network("layer", Pixels((1, 70, 70)), (Convolution(12, 7),))


@given(every_network, st.sampled_from(list(TARGETS.values())))
def test_every_group_has_its_phase_and_one_thread_hands_out_the_results(network, target):
    plan = by_channels(network, target)
    parts = phases(plan)
    groups = [index for phase in parts for index in range(phase.first, phase.last)]
    assert groups == list(range(len(plan.groups)))
    assert parts[0].units == parts[-1].units == 1


@pytest.mark.parametrize("level", TARGETS)
def test_a_layer_worked_on_together_is_handed_out_afterwards(level):
    parts = phases(by_channels(LARGE, TARGETS[level]))
    assert [phase.units > 1 for phase in parts] == [False, True, False]


def test_whoever_is_late_writes_nothing_old():
    """Two images by turns in the same memory: what the other left there must not come out."""
    network = LARGE.with_parameters(random_parameters(LARGE, np.random.default_rng(0)))
    fused = FusedNetwork(network, single=0.0)
    first = np.random.default_rng(1).integers(0, 256, (1, 1, 70, 70), np.uint8)
    images = (first, 255 - first)
    right = [fused(image) for image in images]
    assert not np.array_equal(*right)
    for _ in range(500):
        for image, wanted in zip(images, right, strict=True):
            assert np.array_equal(fused(image), wanted)
