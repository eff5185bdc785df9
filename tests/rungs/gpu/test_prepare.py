"""Designs made real: batches in pieces, parameters where they belong, NaN never hidden."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tests.rungs.gpu.kernels import ODD, chosen_design
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
from tilewright.rungs import find, rungs
from tilewright.rungs.gpu import design, prepare
from tilewright.rungs.gpu.design import Geometry
from tilewright.rungs.gpu.prepare import GpuLaunch, layer_options, naming
from tilewright.runtime import opencl
from tilewright.runtime.device import OPENCL
from tilewright.runtime.dialect import DoesNotFit, Limits, Source
from tilewright.runtime.opencl_runtime import OpenClRuntime
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

REASON = opencl.missing(OPENCL)
pytestmark = [
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
    pytest.mark.usefixtures("not_optimised"),
]
IMAGES = 7


@pytest.fixture
def runtime():
    return OpenClRuntime(OPENCL)


def counting(runtime):
    """The grids that are launched from here on."""
    grids, enqueue = [], runtime.enqueue

    def counted(kernel, grid, arguments, layers, cost):
        grids.append((kernel.name, grid))
        enqueue(kernel, grid, arguments, layers, cost)

    runtime.enqueue = counted
    return grids


def prepared(runtime, rung, stage):
    """A layer as a rung plans and builds it on this runtime, whatever the device's limits."""
    with naming(stage, runtime.limits):
        options = layer_options(stage, rung.convolutions, runtime.limits)
    return rung.prepare(runtime, (stage,), {}, options, rung.precision)


def check(runtime, rung, layer, shape, design_of=None):
    """A layer's outputs on random values are within their bound; all of them are written."""
    network = Network("one", Pixels(shape), (layer,))
    generator = np.random.default_rng(3)
    ready = network.with_parameters(random_parameters(network, generator))
    stage = ready.stages[1]
    design = chosen_design(stage, find(rung), runtime.limits)
    if design_of is not None:
        design = design_of(Geometry.of(stage))
    launch = GpuLaunch(runtime, stage, design, ready.parameters)
    pixels = generator.integers(0, 256, (IMAGES, *shape), np.uint8)
    values = (pixels * network.input.scale + network.input.shift).astype(np.float32)
    out = runtime.upload(np.full((IMAGES, *stage.output_shape), np.nan, np.float32))
    launch(runtime.upload(values), out)
    truth = reference.chain(ready.stages, ready.parameters, pixels, find(rung).precision)[-1]
    _, problem = compare(runtime.download(out), truth)
    assert problem is None, problem
    return launch


@pytest.mark.parametrize("rung", [rung.name for rung in rungs(OPENCL)])
@pytest.mark.parametrize("place", [1 / 3, 1])
def test_candidates_that_are_not_chosen_compute_the_same(rung, place, runtime):
    """One of those in between, and the last."""
    convolutions = find(rung).convolutions

    def design_of(geometry):
        candidates = list(convolutions.candidates(geometry, runtime.limits))
        options = candidates[int(place * (len(candidates) - 1))]
        assert options != convolutions.choose(geometry, runtime.limits)
        return convolutions.build(geometry, options)

    check(runtime, rung, Convolution(7, 3, stride=(2, 1), padding=(1, 2)), (3, 19, 33), design_of)


@pytest.mark.parametrize("rung", ["direct", "tuned", "channel-atomics"])
def test_more_images_than_a_grid_has_go_in_pieces(rung, runtime, monkeypatch):
    """CUDA's grids end at 65,535 along z; here at 3."""
    monkeypatch.setattr(design, "LARGEST_GRID_Z", 3)
    grids = counting(runtime)
    check(runtime, rung, Convolution(5, 3, padding=1), (3, 6, 5))
    kernels = [name for name, _ in grids if name.endswith("_conv")]
    assert len(kernels) == 3  # 3 + 3 + 1 images
    assert max(grid[2] for _, grid in grids) <= 3


@pytest.mark.parametrize("rung", ["padded", "unroll-gemm"])
def test_buffers_in_between_are_bounded(rung, runtime, monkeypatch):
    convolution, shape = Convolution(4, 3, padding=1), (2, 6, 5)
    network = Network("one", Pixels(shape), (convolution,))
    design = chosen_design(network.stages[1], find(rung), runtime.limits)
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


@pytest.mark.parametrize(("threads", "shared"), [(256, 32), (256, 64)])
@pytest.mark.parametrize("rung", [rung.name for rung in rungs(OPENCL)])
def test_designs_fit_devices_of_every_kind(rung, threads, shared):
    """AMD's and some of Intel's have 256 threads, the smallest 32 KiB of shared memory."""
    limits = Limits(threads, shared * 1024, 65536, 10**9, 1, block=(256, 256, 64))
    for network in (tilewright.load("cifar10"), tilewright.load("ece408"), *ODD):
        for stage in network.stages:
            if stage.kind != "flatten":
                for work in chosen_design(stage, find(rung), limits).works:
                    work.source.check(limits)


def fits(stage, rung, limits):
    try:
        return chosen_design(stage, rung, limits).misfit(limits) is None
    except DoesNotFit:
        return False


@pytest.mark.parametrize("rung", [rung.name for rung in rungs(OPENCL)])
def test_a_device_too_small_for_any_kernel_is_one_line(rung, runtime):
    runtime.limits = replace(runtime.limits, threads=3)
    network = Network("one", Pixels((1, 4, 4)), (Convolution(2, 3), ReLU()))
    for stage in network.stages:
        if stage.kind == "conv" and fits(stage, find(rung), runtime.limits):
            continue  # its tiles can be as small as that
        with pytest.raises(DoesNotFit) as error:
            prepared(runtime, find(rung), stage)
        assert str(error.value).startswith(f"{stage.name}: ")
        assert "rung direct" not in str(error.value)


def test_a_kernel_that_does_not_fit_names_one_that_does(runtime):
    runtime.limits = replace(runtime.limits, shared_bytes=200)
    network = Network("one", Pixels((1, 8, 8)), (Convolution(2, 8),))
    with pytest.raises(DoesNotFit, match=r"^conv: .* 200; rung direct needs none of it$"):
        prepared(runtime, find("shared"), network.stages[1])


def test_parameters_are_sent_again(runtime):
    launch = check(runtime, "constant", Convolution(3, 2), (2, 4, 4))
    for _, buffer, array in launch.sent:
        runtime.write(buffer, np.zeros_like(array))
    launch.send_parameters()
    for _, buffer, array in launch.sent:
        np.testing.assert_array_equal(runtime.download(buffer), array)
    assert len(launch.sent) >= 2


@pytest.mark.parametrize("layer", [ReLU(), Tanh(), MaxPool(2), AveragePool(2)])
@pytest.mark.parametrize("place", range(4))
def test_nan_stays_visible(layer, place, runtime):
    """Wherever in a window it is, and whatever is beside it."""
    network = Network("one", Pixels((1, 2, 2)), (layer,))
    stage = network.stages[1]
    design = chosen_design(stage, find("direct"), runtime.limits)
    values = np.array([3.0, -np.inf, np.inf, -1.0], np.float32)
    values[place] = np.nan
    out = runtime.allocate((1, *stage.output_shape))
    GpuLaunch(runtime, stage, design, {})(runtime.upload(values.reshape(1, 1, 2, 2)), out)
    result = runtime.download(out).ravel()
    assert np.isnan(result[place if result.size == 4 else 0])


WINDOWED = {
    **{rung.name: Convolution(2, (3, 2), padding=1) for rung in rungs(OPENCL)},
    "max": MaxPool(2, stride=1),
    "average": AveragePool(2, stride=1),
}


@pytest.mark.parametrize("what", WINDOWED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_reaches_all_it_touches_and_nothing_else(what, value, runtime):
    """Image n has it at place n, and in the last image it is nowhere."""
    layer, shape = WINDOWED[what], (2, 3, 5)
    network = Network("one", Pixels(shape), (layer,))
    stage, size = network.stages[1], math.prod(shape)
    rung = find(what if isinstance(layer, Convolution) else "direct")
    design = chosen_design(stage, rung, runtime.limits)
    # All weights are positive: what is infinite stays infinite.
    parameters = {
        name: np.ones(given, np.float32) for name, given in stage.parameter_shapes.items()
    }
    values = np.ones((size + 1, size), np.float32)
    np.fill_diagonal(values, value)
    out = runtime.upload(np.zeros((size + 1, *stage.output_shape), np.float32))
    GpuLaunch(runtime, stage, design, parameters)(
        runtime.upload(values.reshape(size + 1, *shape)), out
    )
    lost = what == "max" and value == -np.inf  # beside anything larger, as it must be
    touched = reaches(stage, values.reshape(size + 1, *shape) != 1) & (not lost)
    expected = np.where(touched, np.float32(value), runtime.download(out)[size])
    np.testing.assert_array_equal(runtime.download(out), expected)
    assert np.isfinite(expected[size]).all()


def test_channels_that_fill_up_the_last_stage_are_not_the_next_images(runtime):
    """Of 5 channels by 2 or 4 at a time the last is not whole: zero weights leave NaN as it is."""
    network = Network("one", Pixels((5, 6, 6)), (Convolution(2, 3),))
    stage, convolutions = network.stages[1], find("tuned").convolutions
    geometry = Geometry.of(stage)
    offered = convolutions.candidates(geometry, runtime.limits)
    options = next(each for each in offered if 5 % each["staged"])
    ones = {name: np.ones(given, np.float32) for name, given in stage.parameter_shapes.items()}
    values = np.ones((2, 5, 6, 6), np.float32)
    values[1] = np.nan
    out = runtime.allocate((2, *stage.output_shape))
    launch = GpuLaunch(runtime, stage, convolutions.build(geometry, options), ones)
    launch(runtime.upload(values), out)
    assert (runtime.download(out)[0] == 5 * 9 + 1).all()


def reaches(stage, marked):
    """Which outputs' windows cover a marked place."""
    layer, channels = stage.layer, isinstance(stage.layer, Convolution)
    pad_y, pad_x = layer.padding[:2]
    marked = np.pad(marked, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
    window = layer.kernel if channels else layer.size
    windows = np.lib.stride_tricks.sliding_window_view(marked, window, (2, 3)).any((4, 5))
    if channels:
        windows = windows.any(1, keepdims=True)
    return np.broadcast_to(windows, (len(marked), *stage.output_shape))


def test_the_larger_of_two_or_nan(runtime):
    text = (
        "TW_ENTRY TW_NAME(TW_GLOBAL const float *x, TW_GLOBAL float *out) {"
        " out[TW_BLOCK_X] = TW_MAX(x[2 * TW_BLOCK_X], x[2 * TW_BLOCK_X + 1]); }"
    )
    some = [-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan]
    pairs = np.array([(a, b) for a in some for b in some], np.float32)
    out = runtime.allocate((len(pairs),))
    kernel = runtime.compile(Source("larger", text, (1, 1, 1), ()))
    runtime.enqueue(kernel, (len(pairs), 1, 1), [runtime.upload(pairs), out], ())
    np.testing.assert_array_equal(runtime.download(out), np.maximum(*pairs.T))


def test_softmax_of_large_scores_is_finite_and_of_nan_is_nan(runtime):
    network = Network("one", Pixels((3, 1, 1)), (Flatten(), Softmax()))
    stage = network.stages[2]
    design = chosen_design(stage, find("direct"), runtime.limits)
    scores = np.array([[1e4, 0, -1e4], [np.nan, 0, 1]], np.float32)
    out = runtime.allocate((2, 3))
    GpuLaunch(runtime, stage, design, {})(runtime.upload(scores), out)
    result = runtime.download(out)
    assert result[0].tolist() == [1, 0, 0]
    assert np.isnan(result[1]).all()
