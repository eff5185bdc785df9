"""One test body over every rung that can run on this machine."""

from __future__ import annotations

import secrets
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib.stride_tricks import sliding_window_view

from tests.examples import examples
from tests.strategies import fixed_networks, networks
from tilewright.errors import TilewrightError
from tilewright.execute import program_of
from tilewright.job import Request, run
from tilewright.model.layers import (
    MaxPool,
    Pixels,
    ReLU,
)
from tilewright.model.network import Network
from tilewright.rungs import DEFAULT_BATCH, ORDER, choose, rungs
from tilewright.rungs.vendor import onnxruntime, torch
from tilewright.runtime.device import CPU, CUDA, OPENCL, Device
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

GPUS = (OPENCL, CUDA)
LOOPS = 2  # rungs of the CPU that do without matrix products: serial, threads


def case(rung, device, *more):
    """A test's parameters, skipped with the reason where the rung cannot run."""
    reason = rung.missing(device)
    marks = [pytest.mark.skipif(bool(reason), reason=str(reason))]
    if device == CUDA:
        marks.append(pytest.mark.cuda)
    return pytest.param(
        rung, device, *more, id="-".join([str(device), rung.name, *more]), marks=marks
    )


ON_CPU = [case(rung, CPU) for rung in rungs(CPU)]
ON_OPENCL, ON_CUDA = ([case(rung, device) for rung in rungs(device)] for device in GPUS)
ON_GPU = ON_OPENCL + ON_CUDA
RUNGS = ON_CPU + ON_GPU
MEMORIES = [
    case(rung, device, memory)
    for device in GPUS
    for rung in rungs(device)
    for memory in rung.memories
]


@pytest.fixture(scope="session")
def thesis(thesis_weights, thesis_images):
    """What a rung makes of the thesis's network and so many of its images."""

    @cache
    def result(device, rung, images, batch=DEFAULT_BATCH):
        return run(
            Request(
                net="cifar10", weights=thesis_weights, data=str(thesis_images), images=images,
                batch=batch, device=device, rung=rung,
            )
        )  # fmt: skip

    return result


@pytest.mark.parametrize(("rung", "device"), ON_CPU[LOOPS:] + ON_CUDA)
def test_the_thesis_accuracy(rung, device, thesis):
    assert thesis(device, rung.name, 1200).accuracy == 0.7825


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(("rung", "device"), ON_CPU[:LOOPS] + ON_OPENCL)
def test_the_thesis_probabilities(rung, device, thesis):
    """Of loops, and where a CPU plays the GPU, 1,200 images take long: a batch of few."""
    batch = images = 2
    expected = thesis(CPU, "im2col", 1200).outputs[:images]
    found = thesis(device, rung.name, images, batch).outputs
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def check_any_network(rung, device, network, images, batch, seed, memory=None):
    """Each image's output is within its carried bound, twice."""
    generator = np.random.default_rng(seed)
    network = network.with_parameters(random_parameters(network, generator))
    pixels = generator.integers(0, 256, (images, *network.input.shape), np.uint8)
    program = program_of(network, rung, device, batch, memory)
    truth = reference.chain(network.stages, network.parameters, pixels, rung.precision)[-1]
    for _ in range(2):
        _, problem = compare(program(pixels), truth)
        assert problem is None, f"seed {seed}: {problem}"


# Whole batches, a tail, fewer images than a batch.
ODD = [
    pytest.param(*sizes, network, id=f"{sizes[0]}-by-{sizes[1]}")
    for sizes, network in zip([(4, 2), (5, 3), (1, 4)], fixed_networks(3), strict=True)
]
PLANNED = fixed_networks(3)[-1]  # compiled for these already
SIZES = {
    "network": networks(),
    "images": st.integers(1, 5),
    "batch": st.integers(1, 4),
    "seed": st.integers(0, 999),
}


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(("rung", "device"), ON_CPU)
@examples(15)
@given(**SIZES)
def test_any_network_in_any_batches(rung, device, network, images, batch, seed):
    check_any_network(rung, device, network, images, batch, seed)


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(("images", "batch", "network"), ODD)
@pytest.mark.parametrize(("rung", "device"), ON_GPU)
def test_odd_networks_in_odd_batches_on_a_gpu(rung, device, network, images, batch):
    check_any_network(rung, device, network, images, batch, secrets.randbits(32))


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(("rung", "device", "memory"), MEMORIES)
def test_every_memory_plan_computes_the_same(rung, device, memory):
    """Batches that are no multiple of anything, with a tail; more than a queue holds at once."""
    check_any_network(rung, device, PLANNED, 41, 3, 1, memory)


@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize(("rung", "device"), RUNGS)
def test_float_images_enter_as_they_are(rung, device):
    generator = np.random.default_rng(0)
    network = PLANNED.with_parameters(random_parameters(PLANNED, generator))
    pixels = generator.integers(0, 256, (3, *network.input.shape), np.uint8)
    values = (pixels * network.input.scale + network.input.shift).astype(np.float32)
    program = program_of(network, rung, device, 2)
    np.testing.assert_allclose(program(values), program(pixels), atol=1e-6)


@pytest.mark.parametrize("name", ["serial", "threads", "im2col"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layer", [ReLU(), MaxPool(2), MaxPool((3, 2), stride=1)])
def test_nan_and_infinity_come_through(name, value, layer):
    """In every output whose window covers them, wherever in the window, and in no other."""
    network = Network("n", Pixels((1, 6, 6)), (layer,))
    images = np.random.default_rng(0).normal(size=(36, 1, 6, 6)).astype(np.float32)
    images.reshape(36, 36)[np.arange(36), np.arange(36)] = value
    program = program_of(network, choose(CPU, name), CPU, 36)
    if isinstance(layer, ReLU):
        expected = np.maximum(images, 0)
    else:
        windows = sliding_window_view(images, layer.size, axis=(2, 3))
        expected = windows[:, :, :: layer.stride[0], :: layer.stride[1]].max((4, 5))
    np.testing.assert_array_equal(program(images), expected)


def test_the_ladder_is_in_order_and_explains_itself():
    files = [module.partition(".")[2].replace("_", "-") for module in ORDER]
    assert len(set(files)) == len(files)
    for device in (CPU, *GPUS):
        names = [rung.name for rung in rungs(device)]
        assert names == [name for name in files if name in names]
        for rung in rungs(device):
            assert 20 < len(rung.idea) < 100
    assert {rung.name for device in (CPU, *GPUS) for rung in rungs(device)} == set(files)


def test_every_rung_names_the_one_it_changes():
    """A first rung starts anew; all others of our own change one that is below them."""
    for device in (CPU, *GPUS):
        below: list[str] = []
        for rung in rungs(device):
            if rung.vendor or not below:
                assert rung.against is None
            else:
                assert rung.against in below
            below.append(rung.name)
    changes = {rung.name: rung.against for rung in rungs(OPENCL)}
    assert changes["padded"] == "direct"
    assert changes["padded-reduce"] == "padded"


def test_the_default_is_our_own_highest_rung():
    assert choose(CPU, None).name == "fused"


@pytest.mark.parametrize(
    ("device", "name", "words"),
    [
        (CPU, "im2cool", "did you mean 'im2col'"),
        (CUDA, None, "no rung of our own runs on cuda"),
        (Device("opencl", 99), "direct", "OpenCL devices, numbered from 0"),
    ],
)
def test_wrong_names(device, name, words):
    with pytest.raises(TilewrightError) as error:
        choose(device, name)
    assert words in str(error.value)


def test_a_missing_package_says_which_and_how_to_get_it(monkeypatch):
    monkeypatch.setattr(onnxruntime, "find_spec", lambda name: None)
    monkeypatch.setattr(torch, "find_spec", lambda name: None)
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[onnxruntime\]'"):
        choose(CPU, "onnxruntime")
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[torch\]'"):
        choose(CUDA, "torch")
