"""How much code is generated: bounded, whatever the sizes of kernels, windows and networks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.fuse.cpu.machines import ON_THIS_CPU, TARGETS, runnable
from tests.kept import KEPT
from tilewright.errors import TilewrightError
from tilewright.fuse.cpu import grouped
from tilewright.fuse.cpu.generate import generate
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.fuse.cpu.together import MOST_LAYERS
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

BOTH = pytest.mark.parametrize("schedule", [by_images, by_channels])
EVERY_LEVEL = pytest.mark.parametrize("level", TARGETS)


def lines(shape, layers, schedule, level):
    """Of LLVM code; a second is enough to compile 10,000 of them."""
    network = Network("n", Pixels(shape), layers)
    return generate(network, schedule(network, TARGETS[level]), "clock").count("\n")


@BOTH
@EVERY_LEVEL
@pytest.mark.parametrize("pooling", [(), (ReLU(), MaxPool(2))])
@pytest.mark.parametrize(("kernel", "padding"), [(31, 15), (31, 0), (15, 14), (101, 50)])
def test_large_kernels(kernel, padding, pooling, level, schedule):
    layers = (Convolution(16, kernel, padding=padding), *pooling)
    assert lines((2, 120, 120), layers, schedule, level) < 10_000


@BOTH
@EVERY_LEVEL
@pytest.mark.parametrize(
    "layer", [MaxPool((1, 8000)), AveragePool((1, 8000)), Convolution(3, (1, 8000))]
)
def test_what_is_wide_is_a_loop(layer, level, schedule):
    assert lines((1, 2, 9000), (layer,), schedule, level) < 5_000


@BOTH
@EVERY_LEVEL
def test_windows_wholly_outside_the_image_share_their_code(level, schedule):
    near, far = (
        lines((1, 9, 9), (Convolution(3, 5, padding=padding),), schedule, level)
        for padding in (200, 2000)
    )
    assert far < 1.5 * near


@EVERY_LEVEL
def test_large_weights_of_vectors_of_images_are_fetched_ahead(level):
    def fetched(outputs):
        network = Network("n", Pixels((1, 28, 28)), (Flatten(), FullyConnected(outputs)))
        plan = by_images(network, TARGETS[level])
        assert plan.groups[-1].large == (outputs == 800)
        return "@llvm.prefetch.p0(ptr %" in generate(network, plan, "clock")

    assert fetched(800) and not fetched(10)


@BOTH
def test_layers_that_compute_the_same_share_their_code(schedule):
    def of(count):
        return lines((4, 8, 8), (Convolution(4, 3, padding=1), ReLU()) * count, schedule, "avx2")

    few, more, many = of(10), of(20), of(40)
    # What a layer adds is its calls, for both types of pixels.
    assert many - more == 2 * (more - few) < 20 * 40
    network = Network("n", Pixels((4, 8, 8)), (Convolution(4, 3, padding=1), ReLU()) * 9)
    text = generate(network, schedule(network, TARGETS["avx2"]), "clock")
    # The first reads, and the last writes, pictures that lie in another way.
    assert text.count("define internal void @conv") <= 3


@BOTH
def test_too_many_layers_are_refused_at_once(schedule):
    network = Network("deep", Pixels((1, 8, 8)), (ReLU(),) * (MOST_LAYERS + 1))
    with pytest.raises(TilewrightError, match="'deep' has 1,001 layers; the fused rung"):
        schedule(network, TARGETS["avx2"])
    network = Network("flat", Pixels((1, 8, 8)), (ReLU(), *[Flatten()] * (2 * MOST_LAYERS)))
    schedule(network, TARGETS["avx2"])


ODD = {
    "kernel": ((2, 20, 19), (Convolution(3, 13, padding=6), Flatten())),
    "pooling": ((2, 14, 15), (Convolution(5, 9, padding=4), ReLU(), MaxPool(2))),
    "wide": ((1, 3, 90), (Convolution(3, (2, 40), padding=(1, 20)), Tanh(), AveragePool((1, 2)))),
    "small image": ((3, 5, 5), (Convolution(7, (15, 17), padding=(9, 10)), MaxPool((1, 2)))),
    "strides": ((3, 12, 11), (Convolution(21, 11, padding=9, stride=(2, 1)),)),
    "windows": ((2, 3, 100), (MaxPool((2, 60), stride=(1, 7)), AveragePool((1, 4)))),
    "far apart": ((2, 20, 9), (Convolution(4, (5, 3), dilation=(3, 2), padding=(5, 1, 7, 3)),)),
    "groups": ((6, 9, 8), (Convolution(9, 3, groups=3, stride=2, padding=(2, 0, 1, 1)), ReLU())),
    "a filter a channel": ((19, 7, 7), (Convolution(19, 3, groups=19, dilation=2, padding=3),)),
    "repeated": ((3, 6, 6), (*(Convolution(3, 3, padding=1), ReLU()) * 3, FullyConnected(4))),
}


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("level", ON_THIS_CPU)
@pytest.mark.parametrize("name", ODD)
def test_borders_find_their_taps_in_the_run(name, level, monkeypatch):
    """As if every convolution had too much code: all tiles at the image's borders share theirs."""
    monkeypatch.setattr(grouped, "MOST_MULTIPLY_ADDS", 0)
    # Kept objects are known by the generator's source, which has another limit.
    monkeypatch.setenv("XDG_CACHE_HOME", str(KEPT / "little code"))
    shape, layers = ODD[name]
    generator = np.random.default_rng(0)
    network = Network(name, Pixels(shape), layers)
    network = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(19, *shape)).astype(np.float32)
    truth = reference.chain(network.stages, network.parameters, images)[-1]
    for single in (0.0, math.inf):
        _, problem = compare(FusedNetwork(network, runnable()[level], single)(images), truth)
        assert problem is None, problem
