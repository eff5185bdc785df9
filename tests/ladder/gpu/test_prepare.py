"""Designs made real: batches in pieces, parameters where they belong, NaN never hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright import reference
from tilewright.ladder import find
from tilewright.ladder.gpu import prepare
from tilewright.ladder.gpu.prepare import GpuLaunch, layer_design
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Flatten,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.runtime import opencl
from tilewright.runtime.dialect import DoesNotFit
from tilewright.runtime.opencl import OpenClRuntime
from tilewright.trials import random_parameters
from tilewright.verify import compare

REASON = opencl.missing("opencl")
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
IMAGES = 7


@pytest.fixture
def runtime():
    return OpenClRuntime("opencl")


def counting(runtime):
    """The grids that are launched from here on."""
    grids, enqueue = [], runtime.enqueue

    def counted(kernel, grid, arguments, layers, cost):
        grids.append((kernel.name, grid))
        enqueue(kernel, grid, arguments, layers, cost)

    runtime.enqueue = counted
    return grids


def check(runtime, rung, layer, shape):
    """A layer's outputs on random values are within their bound; all of them are written."""
    network = Network("one", Pixels(shape), (layer,))
    generator = np.random.default_rng(3)
    ready = network.with_parameters(random_parameters(network, generator))
    stage = ready.stages[1]
    design = layer_design(stage, find(rung).convolution, runtime.limits)
    launch = GpuLaunch(runtime, stage, design, ready.parameters)
    pixels = generator.integers(0, 256, (IMAGES, *shape), np.uint8)
    values = (pixels * network.input.scale + network.input.shift).astype(np.float32)
    out = runtime.upload(np.full((IMAGES, *stage.output_shape), np.nan, np.float32))
    launch(runtime.upload(values), out)
    truth = reference.chain(ready.stages, ready.parameters, pixels, find(rung).precision)[-1]
    _, problem = compare(runtime.download(out), truth)
    assert problem is None, problem
    return launch


@pytest.mark.parametrize("rung", ["direct", "tuned", "channel-atomics"])
def test_more_images_than_a_grid_has_go_in_pieces(rung, runtime, monkeypatch):
    """CUDA's grids end at 65,535 along z; here at 3."""
    monkeypatch.setattr(prepare, "LARGEST_GRID_Z", 3)
    grids = counting(runtime)
    check(runtime, rung, Convolution(5, 3, padding=1), (3, 6, 5))
    kernels = [name for name, _ in grids if name.endswith("_conv")]
    assert len(kernels) == 3  # 3 + 3 + 1 images
    assert max(grid[2] for _, grid in grids) <= 3


@pytest.mark.parametrize("rung", ["padded", "unroll-gemm"])
def test_buffers_in_between_are_bounded(rung, runtime, monkeypatch):
    convolution, shape = Convolution(4, 3, padding=1), (2, 6, 5)
    network = Network("one", Pixels(shape), (convolution,))
    design = layer_design(network.stages[1], find(rung).convolution, runtime.limits)
    (size,) = design.scratch.values()
    monkeypatch.setattr(prepare, "SCRATCH_BYTES", 4 * size * 2 + 3)
    grids = counting(runtime)
    launch = check(runtime, rung, convolution, shape)
    assert launch.capacity == 2
    assert [grid[2] for _, grid in grids] == [2, 2, 2, 2, 2, 2, 1, 1]
    # An image that alone is beyond the bound still goes through.
    monkeypatch.setattr(prepare, "SCRATCH_BYTES", 1)
    assert check(runtime, rung, convolution, shape).capacity == 1


def test_a_small_device_has_small_buffers_in_between(runtime):
    runtime.limits = replace(runtime.limits, memory_bytes=8 * 4 * 2 * 8 * 7 * 3)
    assert check(runtime, "padded", Convolution(4, 3, padding=1), (2, 6, 5)).capacity == 3


def test_filters_in_several_groups_of_constant_memory(runtime):
    runtime.limits = replace(runtime.limits, constant_bytes=4 * 18 * 3)
    grids = counting(runtime)
    launch = check(runtime, "constant", Convolution(8, 3), (2, 6, 5))
    assert [kernel.constant.shape for _, kernel in launch.kernels] == [(54,), (54,), (36,)]
    assert [grid[0] for _, grid in grids] == [3, 3, 2]


def test_a_filter_beyond_constant_memory(runtime):
    runtime.limits = replace(runtime.limits, constant_bytes=71)
    with pytest.raises(DoesNotFit, match="needs 72 bytes of constant memory for one filter"):
        check(runtime, "constant", Convolution(8, 3), (2, 6, 5))


@pytest.mark.parametrize(
    ("rung", "words"),
    [
        ("shared", "shared_conv needs shared memory of 80,000 bytes; the device has 49,152"),
        ("tuned", "tuned_conv needs more than the device's 49,152 bytes of shared memory"),
    ],
)
def test_windows_beyond_shared_memory(rung, words, runtime):
    runtime.limits = replace(runtime.limits, shared_bytes=49152)
    with pytest.raises(DoesNotFit) as error:
        check(runtime, rung, Convolution(1, 100), (1, 100, 100))
    assert words in str(error.value)


def test_parameters_are_sent_again(runtime):
    launch = check(runtime, "constant", Convolution(3, 2), (2, 4, 4))
    for buffer, array in launch.sent:
        runtime.write(buffer, np.zeros_like(array))
    launch.send_parameters()
    for buffer, array in launch.sent:
        np.testing.assert_array_equal(runtime.download(buffer), array)
    assert len(launch.sent) >= 2


@pytest.mark.parametrize("layer", [ReLU(), Tanh(), MaxPool(2), AveragePool(2)])
@pytest.mark.parametrize("place", range(4))
def test_nan_stays_visible(layer, place, runtime):
    """Wherever in a window it is, and whatever is beside it."""
    network = Network("one", Pixels((1, 2, 2)), (layer,))
    stage = network.stages[1]
    design = layer_design(stage, find("direct").convolution, runtime.limits)
    values = np.array([3.0, -np.inf, np.inf, -1.0], np.float32)
    values[place] = np.nan
    out = runtime.allocate((1, *stage.output_shape))
    GpuLaunch(runtime, stage, design, {})(runtime.upload(values.reshape(1, 1, 2, 2)), out)
    result = runtime.download(out).ravel()
    assert np.isnan(result[place if result.size == 4 else 0])


@pytest.mark.parametrize("rung", ["direct", "fused-gemm", "tuned", "direct-reduce", "constant"])
def test_nan_reaches_all_it_touches_and_nothing_else(rung, runtime):
    network = Network("one", Pixels((1, 3, 9)), (Convolution(1, 3),))
    ready = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    design = layer_design(ready.stages[1], find(rung).convolution, runtime.limits)
    values = np.zeros((2, 1, 3, 9), np.float32)
    values[1, 0, 1, 4] = np.nan
    out = runtime.allocate((2, 1, 1, 7))
    GpuLaunch(runtime, ready.stages[1], design, ready.parameters)(runtime.upload(values), out)
    found = np.isnan(runtime.download(out))
    assert found[1, 0, 0].tolist() == [False, False, True, True, True, False, False]
    assert not found[0].any()


def test_softmax_of_large_scores_is_finite_and_of_nan_is_nan(runtime):
    network = Network("one", Pixels((3, 1, 1)), (Flatten(), Softmax()))
    stage = network.stages[2]
    design = layer_design(stage, find("direct").convolution, runtime.limits)
    scores = np.array([[1e4, 0, -1e4], [np.nan, 0, 1]], np.float32)
    out = runtime.allocate((2, 3))
    GpuLaunch(runtime, stage, design, {})(runtime.upload(scores), out)
    result = runtime.download(out)
    assert result[0].tolist() == [1, 0, 0]
    assert np.isnan(result[1]).all()
