from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.ladder import choose
from tilewright.plan import uniform
from tilewright.trace import Trace

NETWORK = tilewright.load("cifar10")
PIXELS = np.random.default_rng(0).integers(0, 256, (7, 3, 32, 32), np.uint8)


def program(batch, rung="im2col"):
    return Program(NETWORK, uniform(NETWORK, choose("cpu", rung), "cpu", batch))


def test_batches_do_not_change_the_result():
    whole = program(7)(PIXELS)
    for batch in (1, 2, 3, 100):
        np.testing.assert_allclose(program(batch)(PIXELS), whole, atol=1e-6)


def test_a_program_grows_with_what_it_is_given():
    made = program(4)
    few = made(PIXELS[:2])
    np.testing.assert_allclose(made(PIXELS)[:2], few, atol=1e-6)


def test_every_layer_of_every_batch_is_in_the_trace():
    trace = Trace()
    program(3)(PIXELS, trace)
    layers = [event.layers[0] for event in trace.of("kernel")]
    assert layers == [stage.name for stage in NETWORK.stages] * 3
    assert all(event.end >= event.start for event in trace.events)
    assert trace.events[0].name == "im2col_input"


def test_progress_counts_images():
    seen = []
    program(3)(PIXELS, progress=seen.append)
    assert seen == [3, 6, 7]


def test_a_network_without_weights_says_how_to_get_them():
    bare = tilewright.load("ece408-2017")
    with pytest.raises(TilewrightError, match="tilewright train ece408-2017"):
        Program(bare, uniform(bare, choose("cpu", "im2col"), "cpu", 1))


def test_an_impossible_batch_is_refused():
    with pytest.raises(TilewrightError, match="--batch 0"):
        program(0)
