"""The reference against exact arithmetic, and its bounds against kernels that add in odd orders."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import convolutions, networks, pictures, poolings
from tilewright.errors import TilewrightError
from tilewright.execute import program_of
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.precision import FP16, TF32, Precision
from tilewright.rungs import choose
from tilewright.runtime.device import CPU
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

seeds = st.integers(0, 2**32 - 1)


def alone(shape, layer, seed):
    """A layer as the only one of a network, with random weights, and two random images."""
    generator = np.random.default_rng(seed)
    network = Network("n", Pixels(shape), (layer,))
    network = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(2, *shape)).astype(np.float32)
    return network, images


def exact_convolution(x, weight, bias, layer, place):
    """One output as a fraction, straight from the definition."""
    n, f, y, column = place
    total = Fraction(float(bias[f])) if bias is not None else Fraction(0)
    for c in range(weight.shape[1]):
        for ky in range(weight.shape[2]):
            for kx in range(weight.shape[3]):
                iy = y * layer.stride[0] + ky - layer.padding[0]
                ix = column * layer.stride[1] + kx - layer.padding[1]
                if 0 <= iy < x.shape[2] and 0 <= ix < x.shape[3]:
                    product = Fraction(float(x[n, c, iy, ix])) * Fraction(
                        float(weight[f, c, ky, kx])
                    )
                    total += product
    return total


@given(pictures, convolutions, seeds)
def test_convolution_is_exact_to_float64(shape, layer, seed):
    try:
        network, x = alone(shape, layer, seed)
    except TilewrightError:
        return
    weight, bias = network.parameters["conv.weight"], network.parameters.get("conv.bias")
    truth = reference.layer(network.stages[1], network.parameters, x)
    generator = np.random.default_rng(seed)
    for _ in range(5):
        place = tuple(int(generator.integers(size)) for size in truth.value.shape)
        exact = exact_convolution(x, weight, bias, layer, place)
        assert abs(truth.value[place] - exact) < 1e-12
        # What reads nothing but padding, and has no bias, is zero for certain.
        assert truth.bound[place] > 0 or truth.value[place] == 0


@given(pictures, poolings, seeds)
def test_pooling_follows_the_definition(shape, layer, seed):
    try:
        network, x = alone(shape, layer, seed)
    except TilewrightError:
        return
    truth = reference.layer(network.stages[1], {}, x)
    for (n, c, y, column), value in np.ndenumerate(truth.value):
        top, left = y * layer.stride[0], column * layer.stride[1]
        window = x[n, c, top : top + layer.size[0], left : left + layer.size[1]].astype(float)
        assert window.shape == layer.size
        expected = window.max() if isinstance(layer, MaxPool) else window.mean()
        assert value == pytest.approx(expected, abs=1e-12)


def test_softmax_sums_to_one_and_survives_large_scores():
    network = Network("n", Pixels((4, 1, 1)), (FullyConnected(4), Softmax()))
    scores = np.array([[1000.0, 999.0, -1000.0, 0.0]], np.float32)
    truth = reference.layer(network.stages[2], {}, scores)
    assert truth.value.sum() == pytest.approx(1)
    assert truth.value[0, 0] == pytest.approx(1 / (1 + math.exp(-1)))


def float32_orders(products, generator):
    """One sum in float32 in four orders: forwards, backwards, shuffled, as a tree."""
    yield np.add.accumulate(products)[-1]
    yield np.add.accumulate(products[::-1])[-1]
    yield np.add.accumulate(generator.permutation(products))[-1]
    tree = products
    while len(tree) > 1:
        odd = tree[-1:] if len(tree) % 2 else tree[:0]
        tree = np.concatenate([tree[: len(tree) // 2 * 2 : 2] + tree[1::2], odd])
    yield tree[0]


@given(seeds, st.integers(1, 3000), st.sampled_from([1.0, 1e-3, 1e4]))
def test_the_bound_holds_for_every_order_of_additions(seed, terms, scale):
    generator = np.random.default_rng(seed)
    network = Network("n", Pixels((terms, 1, 1)), (FullyConnected(1, bias=False),))
    network = network.with_parameters({"fc.weight": generator.normal(size=(1, terms)) * scale})
    x = generator.normal(size=(1, terms, 1, 1)).astype(np.float32)
    truth = reference.layer(network.stages[1], network.parameters, x)
    products = network.parameters["fc.weight"][0] * x.ravel()
    for total in float32_orders(products, generator):
        assert abs(float(total) - truth.value[0, 0]) <= truth.bound[0, 0]


@given(seeds, st.integers(1, 2000))
def test_whole_numbers_have_no_error_at_all(seed, terms):
    generator = np.random.default_rng(seed)
    network = Network("n", Pixels((terms, 1, 1)), (FullyConnected(1),))
    parameters = {"fc.weight": generator.integers(-9, 10, (1, terms)).astype(float),
                  "fc.bias": np.array([3.0])}  # fmt: skip
    network = network.with_parameters(parameters)
    x = generator.integers(-99, 100, (1, terms, 1, 1)).astype(np.float32)
    truth = reference.layer(network.stages[1], network.parameters, x)
    assert truth.bound[0, 0] == 0
    products = network.parameters["fc.weight"][0] * x.ravel()
    for total in float32_orders(np.append(products, np.float32(3)), generator):
        assert total == truth.value[0, 0]


@given(seeds, st.integers(-20, 20), st.integers(-20, 20))
def test_multiples_of_a_power_of_two_have_no_error_either(seed, low, high):
    generator = np.random.default_rng(seed)
    network = Network("n", Pixels((50, 1, 1)), (FullyConnected(1),))
    weight = generator.integers(-999, 1000, (1, 50)) * 2.0**low
    network = network.with_parameters({"fc.weight": weight, "fc.bias": [2.0 ** (low + high)]})
    x = (generator.integers(-99, 100, (1, 50, 1, 1)) * 2.0**high).astype(np.float32)
    truth = reference.layer(network.stages[1], network.parameters, x)
    assert truth.bound[0, 0] == 0
    products = np.append(network.parameters["fc.weight"][0] * x.ravel(), 2.0 ** (low + high))
    for total in float32_orders(products.astype(np.float32), generator):
        assert total == truth.value[0, 0]


def compensated(products):
    """Kahan's sum, which corrects what it has even when nothing is added."""
    total = lost = np.float32(0)
    for product in products:
        corrected = product - lost
        after = total + corrected
        lost, total = (after - total) - corrected, after
    return total


@given(seeds, st.integers(1, 5))
def test_products_with_zero_do_not_count(seed, there):
    """A sum of thousands of which few are not zero is bound by those few, in any order."""
    generator = np.random.default_rng(seed)
    network = Network("n", Pixels((3000, 1, 1)), (FullyConnected(1, bias=False),))
    weight = np.zeros((1, 3000))
    weight[0, generator.choice(3000, there, replace=False)] = generator.normal(size=there)
    network = network.with_parameters({"fc.weight": weight})
    x = generator.normal(size=(1, 3000, 1, 1)).astype(np.float32)
    truth = reference.layer(network.stages[1], network.parameters, x)
    products = network.parameters["fc.weight"][0] * x.ravel()
    units = 1 if there == 1 else max(4, there)  # what a compensated sum takes
    assert truth.bound[0, 0] <= 1.01 * units * 2.0**-24 * np.abs(products).sum()
    for total in (*float32_orders(products, generator), compensated(products)):
        assert abs(float(total) - truth.value[0, 0]) <= truth.bound[0, 0]


@given(seeds)
def test_operands_that_a_precision_holds_are_not_rounded(seed):
    generator = np.random.default_rng(seed)
    network = Network("n", Pixels((20, 1, 1)), (FullyConnected(3, bias=False),))
    eleven_bits = generator.integers(-(2**11), 2**11 + 1, (3, 20)) / 2.0**7
    network = network.with_parameters({"fc.weight": eleven_bits})
    x = (generator.integers(-(2**11), 2**11 + 1, (1, 20, 1, 1)) / 2.0**9).astype(np.float32)
    for precision in (FP16, TF32):
        assert precision.holds(x.astype(float)).all()
        held = reference.layer(network.stages[1], network.parameters, x, None, precision)
        other = reference.layer(
            network.stages[1], network.parameters, x * np.float32(1.001), None, precision
        )
        assert (held.bound < other.bound / 20).all()
    assert not FP16.holds(np.array([2.0**11 + 0.5, 2.0**-25, 7e4])).any()
    assert TF32.holds(np.array([2.0**-40, 7e4])).tolist() == [True, False]


def test_whole_numbers_beyond_the_mantissa_have_a_bound():
    network = Network("n", Pixels((2, 1, 1)), (FullyConnected(1, bias=False),))
    network = network.with_parameters({"fc.weight": np.array([[4097.0, 4097.0]])})
    x = np.full((1, 2, 1, 1), 4097, np.float32)
    assert reference.layer(network.stages[1], network.parameters, x).bound[0, 0] > 0


def test_rounded_operands_widen_the_bound():
    half = Precision("fp16", 2.0**-11, 2.0**-24)
    network, x = alone((100, 1, 1), FullyConnected(5), 0)
    weight = network.parameters["fc.weight"]
    truth = reference.layer(network.stages[1], network.parameters, x, precision=half)
    exact = reference.layer(network.stages[1], network.parameters, x)
    assert (truth.bound > 100 * exact.bound).all()
    rounded = x.reshape(2, -1).astype(np.float16).astype(float) @ weight.astype(np.float16).astype(
        float
    ).T + network.parameters["fc.bias"].astype(float)
    assert (np.abs(rounded - truth.value) <= truth.bound).all()
    assert (np.abs(rounded - truth.value) > exact.bound).any()


@pytest.mark.parametrize("layer", [Tanh(), AveragePool(3, stride=2)])
def test_float32_is_within_the_bound(layer):
    network, x = alone((3, 9, 9), layer, 0)
    truth = reference.layer(network.stages[1], {}, x)
    if isinstance(layer, Tanh):
        result = np.tanh(x)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
        result = windows.mean((4, 5), dtype=np.float32)
    assert (np.abs(result - truth.value) <= truth.bound).all()
    assert truth.bound.max() < 1e-5


@given(networks(), seeds)
def test_bounds_carried_through_a_network_hold(network, seed):
    """A float32 run, each layer rounded, stays within the bounds carried from the pixels on."""
    generator = np.random.default_rng(seed)
    network = network.with_parameters(random_parameters(network, generator))
    pixels = generator.integers(0, 256, (2, *network.input.shape), np.uint8)
    truths = reference.chain(network.stages, network.parameters, pixels)
    program = program_of(network, choose(CPU, "im2col"), CPU, 2)
    result = program(pixels)
    assert (np.abs(result - truths[-1].value) <= truths[-1].bound).all()


def test_a_bound_is_never_nan_and_a_probability_never_uncertain_by_more_than_one():
    """Deep and badly scaled: the carried error of the scores overflows exp."""
    layers = [layer for _ in range(5) for layer in (FullyConnected(256), ReLU())]
    network = Network("deep", Pixels((1, 16, 16)), (*layers, FullyConnected(10), Softmax()))
    random = random_parameters(network, np.random.default_rng(0))
    network = network.with_parameters({name: 4 * value for name, value in random.items()})
    pixels = np.random.default_rng(1).integers(0, 256, (2, 1, 16, 16), np.uint8)
    truth = reference.chain(network.stages, network.parameters, pixels)[-1]
    assert np.isfinite(truth.bound).all()
    assert truth.bound.max() < 1.001


def test_an_infinite_bound_proves_nothing():
    truth = reference.Truth(np.zeros(2), np.array([np.inf, 0.0]))
    _, problem = compare(np.array([np.inf, 0.0], np.float32), truth)
    assert problem is not None
    assert "cannot be verified" in problem


@pytest.mark.parametrize("layer", [ReLU(), MaxPool(1), FullyConnected(1, bias=False)])
def test_a_device_may_flush_tiny_numbers_to_zero(layer):
    network = Network("n", Pixels((1, 1, 1)), (layer,))
    weights = {name: np.full(shape, 1e6) for name, shape in network.parameter_shapes.items()}
    network = network.with_parameters(weights)
    truth = reference.layer(
        network.stages[1], network.parameters, np.full((1, 1, 1, 1), 1e-39, np.float32)
    )
    assert truth.value.ravel()[0] > 0
    assert truth.bound.ravel()[0] >= truth.value.ravel()[0]


def _rounded(values, precision):
    """Operands as a tensor core of that precision takes them."""
    if precision is FP16:
        return values.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _truncated(values):
    """Operands of 8 bits, as bfloat16 has them."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


@pytest.mark.parametrize("precision", [FP16, TF32], ids=lambda p: p.name)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-6, 1e-3, 1.0, 30.0]))
def test_the_bounds_of_tensor_cores_hold(precision, seed, scale):
    """Through a whole network whose operands are rounded as claimed."""
    layers = (Convolution(7, 3, padding=1), ReLU(), MaxPool(2), FullyConnected(5))
    network = Network("small", Pixels((3, 8, 6)), layers)
    generator = np.random.default_rng(seed)
    ready = network.with_parameters(random_parameters(network, generator))
    images = (generator.normal(size=(2, 3, 8, 6)) * scale).astype(np.float32)
    truth = reference.chain(ready.stages, ready.parameters, images, precision)[-1]

    x = images
    for stage in ready.stages[1:]:
        given_here = dict(ready.parameters)
        if stage.parameter_shapes:
            name = f"{stage.name}.weight"
            given_here[name] = _rounded(given_here[name], precision)
            x = _rounded(x, precision)
        x = reference.layer(stage, given_here, x).value.astype(np.float32)
    assert compare(x, truth)[1] is None


@pytest.mark.parametrize("precision", [FP16, TF32], ids=lambda p: p.name)
def test_coarser_operands_are_outside_the_bound(precision):
    """One layer, where the bound is tight: 8 bits are not 11."""
    network = Network("layer", Pixels((4, 9, 9)), (Convolution(8, 3),))
    generator = np.random.default_rng(0)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(3, 4, 9, 9)).astype(np.float32)
    stage, name = ready.stages[1], "conv.weight"
    truth = reference.layer(stage, ready.parameters, images, None, precision)
    coarse = {**ready.parameters, name: _truncated(ready.parameters[name])}
    output = reference.layer(stage, coarse, _truncated(images)).value.astype(np.float32)
    assert compare(output, truth)[1] is not None


def test_numbers_too_small_for_fp16_may_be_lost():
    network = Network("layer", Pixels((1, 1, 1)), (Convolution(1, 1, bias=False),))
    stage, parameters = network.stages[1], {"conv.weight": np.full((1, 1, 1, 1), 3.0, np.float32)}
    images = np.full((1, 1, 1, 1), 2e-8, np.float32)  # half of the smallest number of fp16
    zero = np.zeros((1, 1, 1, 1), np.float32)
    half, full = (
        reference.layer(stage, parameters, images, None, precision) for precision in (FP16, TF32)
    )
    assert compare(zero, half)[1] is None
    assert compare(zero, full)[1] is not None
