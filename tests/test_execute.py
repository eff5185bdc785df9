from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.execute import Program, program_of
from tilewright.job import Request, run
from tilewright.model.layers import Convolution, Flatten, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import choose, rungs
from tilewright.runtime.device import CPU, OPENCL
from tilewright.trace import Trace
from tilewright.truth.trials import random_parameters

NETWORK = tilewright.load("cifar10")
PIXELS = np.random.default_rng(0).integers(0, 256, (7, 3, 32, 32), np.uint8)


def program(batch, rung="im2col"):
    return program_of(NETWORK, choose(CPU, rung), CPU, batch)


def test_batches_do_not_change_the_result():
    whole = program(7)(PIXELS)
    for batch in (1, 2, 3, 100):
        np.testing.assert_allclose(program(batch)(PIXELS), whole, atol=1e-6)


def test_a_program_grows_with_what_it_is_given():
    made = program(4)
    few = made(PIXELS[:2])
    np.testing.assert_allclose(made(PIXELS)[:2], few, atol=1e-6)


def test_bytes_are_taken_where_none_were_expected():
    expected = program(7)
    made = Program(NETWORK, expected.plan, {"im2col": choose(CPU, "im2col")}, pixels=False)
    np.testing.assert_array_equal(made(PIXELS), expected(PIXELS))


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
        program_of(bare, choose(CPU, "im2col"), CPU, 1)


def test_an_impossible_batch_is_refused():
    with pytest.raises(TilewrightError, match="--batch 0"):
        program(0)


@pytest.mark.parametrize("memory", ["resident", "streamed", "per-layer", "managed"])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_a_network_that_only_flattens(memory, dtype):
    """Nothing writes the output unless somebody thinks of it: with floats no kernel runs at all."""
    network = Network("flat", Pixels((1, 4, 5)), (Flatten(),))
    images = np.arange(140).reshape(7, 1, 4, 5).astype(dtype)
    expected = images.reshape(7, -1).astype(np.float32)
    if dtype == np.uint8:
        expected = expected * np.float32(network.input.scale) + np.float32(network.input.shift)
    cases = [(CPU, choose(CPU, "im2col"), None)]
    if not choose_missing("direct"):
        cases.append((OPENCL, choose(OPENCL, "direct"), memory))
    for device, rung, plan in cases:
        made = program_of(network, rung, device, 3, plan)
        np.testing.assert_allclose(made(images), expected, atol=1e-6)


def choose_missing(name):
    return next(rung for rung in rungs(OPENCL) if rung.name == name).missing(OPENCL)


@pytest.mark.usefixtures("not_optimised")
def test_copies_per_layer_are_the_parameters_once():
    """Input, weights and bias in and the output out, of each layer and batch; no bias, no copy."""
    if choose_missing("constant"):
        pytest.skip("no OpenCL")
    layers = (Convolution(3, 3), ReLU(), FullyConnected(4, bias=False))
    network = Network("copies", Pixels((2, 6, 6)), layers)
    network = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    images = np.zeros((5, 2, 6, 6), np.uint8)
    weights = [3 * 2 * 9, 3, 4 * 48]
    for name in ("direct", "constant"):
        trace = Trace()
        program_of(network, choose(OPENCL, name), OPENCL, 2, "per-layer")(images, trace)
        copies = [event.bytes for event in trace.of("copy")]
        assert len(copies) == 3 * (2 * 3 + 3)
        moved = 5 * (72 + 2 * (48 + 48) + 4)
        assert sum(copies) == 4 * (moved + 3 * sum(weights))


def test_an_output_that_is_not_finite_is_never_passed_on(monkeypatch):
    """Also when the layers, computed once more, are all finite."""
    right = Program.__call__

    def once_wrong(self, images, *given):
        outputs = right(self, images, *given)
        outputs[-1] = np.nan
        return outputs

    monkeypatch.setattr(Program, "__call__", once_wrong)
    with pytest.raises(TilewrightError, match="not finite, but was when computed again"):
        run(Request(net="ece408", images=3, rung="im2col"))
