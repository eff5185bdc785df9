"""NaN and infinity in whole-network kernels: they arrive, and in their own image only."""

from __future__ import annotations

import re
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuse.cuda.interpreter import interpret
from tests.strategies import networks as drawn_networks
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import Kernel, cut
from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.panels import Panels
from tilewright.fuse.cuda.stack import Stack
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    Shape,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth import reference
from tilewright.truth.trials import random_parameters

PRECISIONS = list(ARITHMETICS)


def planned(network: Network, precision: str, capability: int = 90) -> list[Kernel]:
    return cut(network.stages, ARITHMETICS[precision], capability)


def ready(shape: Shape, layers: tuple[Layer, ...]) -> tuple[Network, np.ndarray]:
    """With random weights, and a few images."""
    network, generator = Network("net", Pixels(shape), layers), np.random.default_rng(0)
    made = network.with_parameters(random_parameters(network, generator))
    return made, generator.normal(size=(3, *shape)).astype(np.float32)


def check_others(
    network: Network, kernels: list[Kernel], images: np.ndarray, shares: bool = True
) -> None:
    """The second of three images is all NaN; the others give what they give beside numbers."""
    alone = interpret(kernels, network, images, shares)
    assert np.isfinite(alone).all()
    spoilt = images.copy()
    spoilt[1] = np.nan
    found = interpret(kernels, network, spoilt, shares)
    # Where windows see nothing but zeros around the picture, nothing arrives.
    truth = reference.chain(network.stages, network.parameters, spoilt)[-1].value
    assert np.isfinite(truth[1]).all() or np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[[0, 2]], alone[[0, 2]])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "layers",
    [
        (Convolution(4, 3), ReLU(), FullyConnected(3), Softmax()),
        (Convolution(4, 3), MaxPool(2), FullyConnected(3)),
        (Convolution(4, 3), AveragePool(2), ReLU(), FullyConnected(3)),
        (MaxPool(3, stride=2), FullyConnected(3)),
        (ReLU(), Tanh(), AveragePool(2), FullyConnected(3)),
        (FullyConnected(300), ReLU(), FullyConnected(3), Softmax()),
    ],
)
def test_a_pixel_that_is_not_a_number_arrives(layers: tuple[Layer, ...], precision: str) -> None:
    network, images = ready((1, 9, 9), layers)
    images[1, 0, 4, 4] = np.nan
    found = interpret(planned(network, precision), network, images)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


@pytest.mark.parametrize(
    "shape, layers",
    [
        # Gaps between pixels; what is read after the last row, in two copies; a deep picture.
        ((3, 12, 12), (Convolution(6, 3), ReLU(), Convolution(9, 3), Convolution(5, 3))),
        ((1, 6, 6), (Convolution(24, 1), Convolution(18, 1), Convolution(3, 1))),
        ((2, 8, 8), (Convolution(20, 5, padding=2), MaxPool(2), Convolution(20, 3),
                     Convolution(20, 2), FullyConnected(4))),
    ],
)  # fmt: skip
@pytest.mark.parametrize("precision", PRECISIONS)
def test_words_between_pixels_are_no_other_images(
    shape: Shape, layers: tuple[Layer, ...], precision: str
) -> None:
    network, images = ready(shape, layers)
    check_others(network, planned(network, precision), images)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_of_fully_connected_layers_are_no_other_images(precision: str) -> None:
    """The fourth layer's rows lie where the second's were, closer together."""
    layers = (FullyConnected(130), FullyConnected(70), FullyConnected(33), FullyConnected(5))
    network, images = ready((3, 8, 8), (*layers, FullyConnected(3), Softmax()))
    _, dense = kernels = planned(network, precision, 80)
    assert isinstance(dense, Dense)
    check_others(network, kernels, images)
    in_panels = planned(network, precision)
    assert all(isinstance(each, Panels) for each in in_panels)
    for shares in (True, False):
        check_others(network, in_panels, images, shares)


@examples(20)
@given(
    drawn_networks(), st.sampled_from(PRECISIONS), st.integers(0, 2**32 - 1),
    st.sampled_from([2048, 4096, 8192, 2**17]),
)  # fmt: skip
def test_networks_of_any_shape(network: Network, precision: str, seed: int, kept: int) -> None:
    generator = np.random.default_rng(seed)
    made = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(3, *network.input.shape)).astype(np.float32)
    with mock.patch.dict(GENERATIONS, {90: replace(HOPPER, shared_bytes=kept)}):
        try:
            kernels = planned(made, precision)
        except DoesNotFit:
            assume(False)
        check_others(made, kernels, images)


def overflowing(shape: Shape) -> tuple[Network, np.ndarray]:
    """70 000 on the way; the true output is 3, and infinity would make 0 of it."""
    layers = (FullyConnected(2), ReLU(), FullyConnected(2), ReLU())
    network = Network("steep", Pixels(shape), layers)
    size = int(np.prod(shape))
    parameters = {
        "fc1.weight": np.full((2, size), 700 / size, np.float32),
        "fc1.bias": np.zeros(2, np.float32),
        "fc2.weight": np.full((2, 2), -5e-5, np.float32),
        "fc2.bias": np.full(2, 10, np.float32),
    }
    return network.with_parameters(parameters), np.full((2, *shape), 100, np.float32)


@pytest.mark.parametrize("shape", [(1, 2, 2), (8, 32, 32)])
def test_what_is_too_large_for_a_half_is_not_lost(shape: Shape) -> None:
    """Also in a kernel over the batch."""
    network, images = overflowing(shape)
    for precision in ("tf32", "fp32"):
        found = interpret(planned(network, precision), network, images)
        np.testing.assert_allclose(found, 3, rtol=0.02)
    assert np.isnan(interpret(planned(network, "fp16"), network, images)).all()
    assert isinstance(planned(network, "fp16")[-1], Stack if shape[0] == 1 else Panels)


def test_a_pixel_that_is_too_large_for_a_half_is_not_lost() -> None:
    network, images = ready((3, 8, 8), (Convolution(4, 3), Tanh(), FullyConnected(3), Softmax()))
    images[1, 2, 3, 3] = 1e5
    found = interpret(planned(network, "fp16"), network, images)
    assert np.isnan(found[1]).all()
    assert np.isfinite(interpret(planned(network, "tf32"), network, images)).all()


@pytest.mark.parametrize(
    "precision, held, refused", [("fp16", 65519, "65520"), ("tf32", 3.401e38, "3.4028e+38")]
)
@pytest.mark.parametrize("shape", [(1, 4, 4), (8, 32, 32)])
def test_weights_that_are_too_large_are_refused(
    shape: Shape, precision: str, held: float, refused: str
) -> None:
    """As infinity they would give -1 or 1 after a tanh, whatever the image."""
    network, _ = ready(shape, (FullyConnected(2), Tanh()))

    def send(weight: float, precision: str) -> None:
        weights = network.parameters["fc.weight"].copy()
        weights[1, 3] = -weight
        for plan in planned(network, precision):
            plan.parameters({**network.parameters, "fc.weight": weights})

    send(held, precision)
    send(float(refused), "fp32")
    words = rf"^fc: a weight of -{re.escape(refused)} is too large for {precision}; fp32 has room "
    with pytest.raises(DoesNotFit, match=words):
        send(float(refused), precision)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_operands_keep_what_is_not_finite(precision: str) -> None:
    odd = np.array([np.nan, np.inf, -np.inf, 1.0], np.float32)
    all_ones = np.array([0x7FFFFFFF, 0xFFFFFFFF], np.uint32).view(np.float32)
    arithmetic = ARITHMETICS[precision]
    kind = np.float16 if arithmetic.per_word == 2 else np.float32
    found = arithmetic.operands(np.concatenate([odd, all_ones])).view(kind)
    np.testing.assert_array_equal(found.astype(np.float32), np.append(odd, [np.nan, np.nan]))
