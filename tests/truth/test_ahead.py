"""Kernels of the trials to come, on a runtime that only notes what it should begin with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.model.layers import Convolution, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.rungs.cpu import im2col
from tilewright.runtime import cuda
from tilewright.runtime.device import CPU, CUDA
from tilewright.runtime.dialect import Limits
from tilewright.runtime.multiprocessor import REFERENCE
from tilewright.truth import ahead
from tilewright.truth.ahead import compiled_ahead
from tilewright.truth.trials import Trial, random_parameters

LIMITS = Limits(1024, 49152, 65536, 2**34, 100)


@pytest.fixture(autouse=True)
def given_gpu(monkeypatch):
    """Plans are made for a GPU that is not here."""
    monkeypatch.setattr(cuda, "device_limits", lambda device: LIMITS)
    monkeypatch.setattr(cuda, "gpu", lambda index: REFERENCE)


class Noted:
    limits, capability = LIMITS, 90

    def __init__(self):
        self.begun = []

    def compile_ahead(self, texts):
        self.begun.append(dict(texts))
        return ()


def trial(layer, pixels=False, seed=0):
    network = Network("layer", Pixels((2, 6, 6)), (layer, ReLU()))
    generator = np.random.default_rng(seed)
    images = generator.integers(0, 9, (3, 2, 6, 6)).astype(np.uint8 if pixels else np.float32)
    parameters = random_parameters(network, generator)
    return Trial(str(seed), network.with_parameters(parameters), images)


def rung_on(runtime, name, precision=None):
    return replace(find(name).at(precision), open_runtime=lambda device, memory: runtime)


TRIALS = [
    trial(Convolution(3, 3)),
    trial(Convolution(3, 3), seed=1),
    trial(Convolution(3, 3), pixels=True, seed=2),
    trial(FullyConnected(5), seed=3),
    trial(Convolution(3, 3), seed=4),
]


@pytest.mark.parametrize("name, precision", [("tuned", None), ("network", "fp16")])
def test_every_network_is_begun_once_before_the_first_is_tried(name, precision):
    runtime = Noted()
    drawn = compiled_ahead(rung_on(runtime, name, precision), CUDA, iter(TRIALS))
    assert next(drawn) is TRIALS[0]
    assert len(runtime.begun) == 3  # the others are like one before
    assert all(runtime.begun)
    assert list(drawn) == TRIALS[1:]


def test_the_input_is_compiled_for_bytes_alone():
    runtime = Noted()
    list(compiled_ahead(rung_on(runtime, "tuned"), CUDA, TRIALS))
    names = ({name for name, _ in texts} for texts in runtime.begun)
    assert ["layer_normalise" in each for each in names] == [False, True, False]


def test_a_whole_network_is_compiled_for_what_it_is_given():
    runtime = Noted()
    trials = [trial(Convolution(64, 3), pixels, seed) for seed, pixels in ((0, False), (1, True))]
    list(compiled_ahead(rung_on(runtime, "network", "tf32"), CUDA, trials))
    values, pixels = ([text for _, text in texts] for texts in runtime.begun)
    assert len(values) == len(pixels) == 2  # for many images, and for few
    assert all("const float* images" in text for text in values)
    assert all("const unsigned char* images" in text for text in pixels)


@pytest.mark.parametrize("limit", [("MOST_TRIALS", 2), ("MOST_BYTES", 2500)])
def test_no_more_is_held_than_may_be(monkeypatch, limit):
    monkeypatch.setattr(ahead, *limit)
    taken = []

    def count():
        for each in TRIALS:
            taken.append(each)
            yield each

    drawn = compiled_ahead(rung_on(Noted(), "tuned"), CUDA, count())
    held = []
    for index, each in enumerate(drawn):
        assert each is TRIALS[index]
        held.append(len(taken) - index)
    assert max(held) == 3


def test_what_does_not_fit_is_left_to_the_trial():
    runtime = Noted()
    runtime.limits = replace(LIMITS, threads=16)
    assert list(compiled_ahead(rung_on(runtime, "shared"), CUDA, TRIALS)) == TRIALS


def test_a_runtime_without_a_compiler_takes_trials_as_they_come():
    drawn = compiled_ahead(im2col.RUNG, CPU, iter(TRIALS))
    assert list(drawn) == TRIALS
