"""A rung is asked once for its choice, whatever the weights and images of a trial."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.model.layers import Convolution, Pixels
from tilewright.model.network import Network
from tilewright.plan import uniform
from tilewright.rungs.cpu import im2col
from tilewright.runtime.device import CPU
from tilewright.truth.plans import Plans
from tilewright.truth.trials import Trial, random_parameters


def trial(layer, name, calls, seed):
    network = Network(name, Pixels((1, 5, 5)), (layer,))
    parameters = random_parameters(network, np.random.default_rng(seed))
    images = np.zeros((3, 1, 5, 5), np.float32)
    return Trial("numbers", network.with_parameters(parameters), images, calls)


def test_a_rung_chooses_once_for_each_network_whatever_the_way():
    asked = []

    def plan(device, stages, precision):
        asked.append([stage.layer for stage in stages])
        return {}

    rung = replace(im2col.RUNG, plan=plan)
    plans = Plans(rung, CPU)
    few = trial(Convolution(2, 3), "few", ((0,), (1,)), 0)
    many = trial(Convolution(2, 3), "many", ((0, 1, 2), (1,)), 1)
    made = [plans.of(each, way) for way in ({}, {"tile": 2}) for each in (few, many)]
    steps = len(rung.cut(few.network))
    assert len(asked) == steps
    expected = [
        uniform(each.network, rung, CPU, each.capacity, options=way)
        for way in ({}, {"tile": 2})
        for each in (few, many)
    ]
    assert made == expected
    asked.clear()
    plans.of(trial(Convolution(2, 2), "few", ((0,),), 2), {})
    assert len(asked) == steps
