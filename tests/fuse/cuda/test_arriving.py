"""Pixels of many channels as words, by a kernel of its own, before a wide convolution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import structs

from tests.fuse.cuda import on_host
from tests.fuse.cuda.interpreter import interpret, run_arriving
from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.alternatives import alternatives
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arriving import Arriving, arriving, can_arrive, with_arriving
from tilewright.fuse.cuda.choice import Few, Passed
from tilewright.fuse.cuda.cut import build, choose, cut, few_of, with_few
from tilewright.fuse.cuda.emit_passing import passing_text
from tilewright.fuse.cuda.generations import HOPPER, generation
from tilewright.fuse.cuda.patches import Patches
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.fuse.cuda.to_do import is_large, to_do
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    Pixels,
    ReLU,
)
from tilewright.model.network import Network
from tilewright.runtime import cuda
from tilewright.runtime.cuda import CudaRuntime
from tilewright.runtime.device import CUDA
from tilewright.runtime.nvrtc import compile_cubin
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

REASON = cuda.missing(CUDA)
PRECISIONS = ["fp16", "tf32", "tf32x3", "fp32"]


def wide(channels: int, *shape: int, scale: Any = 1 / 255, shift: Any = -0.5) -> Network:
    layers = (Convolution(128, 3, padding=1), ReLU(), Convolution(64, 3, padding=1), ReLU(),
              FullyConnected(5))  # fmt: skip
    made = Network("wide", Pixels((channels, *shape), scale, shift), layers)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def several(channels: int) -> Network:
    """Of whose pixels there are several readers."""
    layers: tuple[Layer, ...] = (
        Convolution(96, 3, padding=1), ReLU(), Convolution(channels, 1), Add(), Concat(),
        Convolution(3, 1),
    )  # fmt: skip
    sources = ((0,), (1,), (2,), (3, 0), (4, 0), (5,))
    made = Network("several", Pixels((channels, 8, 9)), layers, sources=sources)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def plan_of(network: Network, precision: str) -> Arriving:
    todo = with_arriving(to_do(network.stages, HOPPER), HOPPER)
    plan = arriving(ARITHMETICS[precision], todo[0])
    assert plan is not None
    return plan


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("channels, side", [(32, 9), (33, 5), (38, 4), (44, 1), (200, 3)])
@pytest.mark.parametrize("precision", ["fp16", "tf32", "fp32"])
def test_every_word_is_what_it_should_be(precision: str, channels: int, side: int) -> None:
    """The kernel's own text, run here: fewer warps than tiles, and more; bytes, and floats."""
    by_channel = tuple(np.linspace(0.01, 0.02, channels)), tuple(np.linspace(-1, 1, channels))
    for scale, shift in ((1 / 255, -0.5), by_channel):
        network = wide(channels, side, side + 2, scale=scale, shift=shift)
        plan = plan_of(network, precision)
        generator = np.random.default_rng(channels)
        given = generator.integers(0, 256, (3, *network.input.shape), np.uint8)
        for pixels, images in ((network.input, given), (None, given / np.float32(7))):
            expected = run_arriving(plan, images, network.input)
            for step in (64, 4096):
                found = on_host.put_arrived(plan, pixels, images, step)
                assert np.array_equal(found, expected)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("network", [wide(200, 11, 7), wide(136, 8, 8)], ids=["200", "136"])
def test_before_a_wide_convolution(network: Network, precision: str) -> None:
    """Of few images and of many, as it is chosen; and its words are the caller's floats, too."""
    arithmetic, capability = ARITHMETICS[precision], 90
    choice = structs.replace(choose(network.stages, arithmetic, capability), apart=())
    kernels = cut(network.stages, arithmetic, capability)
    assert isinstance(kernels[0], Arriving) and isinstance(kernels[1], Patches)
    with pytest.raises(TilewrightError, match=r"options\.kernels"):
        build(network.stages, arithmetic, capability, choice)
    images = np.random.default_rng(1).integers(0, 256, (9, *network.input.shape), np.uint8)
    scaled = (images * np.float32(1 / 255) - np.float32(0.5)).astype(np.float32)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
    for given in (images, scaled):
        assert compare(interpret(kernels, network, given), truth[-1])[1] is None


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
@pytest.mark.parametrize("channels", [36, 200])
def test_tables_of_channels_are_not_on_the_stack(precision: str, channels: int) -> None:
    by_channel = tuple(np.linspace(0.01, 0.02, channels)), tuple(np.linspace(-1, 1, channels))
    for scale, shift in ((1 / 255, -0.5), by_channel):
        network = wide(channels, 5, 6, scale=scale, shift=shift)
        text = passing_text(plan_of(network, precision), "words", network.input, "uint8")
        compiled = compile_cubin("words", text, "sm_90a")
        assert (compiled.stack_bytes, compiled.spilled_bytes) == (0, 0)


def connected_too() -> Network:
    """A fully connected layer over the batch reads the pixels, too."""
    layers: tuple[Layer, ...] = (
        Convolution(128, 3, padding=1), ReLU(), AveragePool(8), Flatten(), Flatten(),
        FullyConnected(128), Add(), FullyConnected(5),
    )  # fmt: skip
    sources = ((0,), (1,), (2,), (3,), (0,), (5,), (4, 6), (7,))
    made = Network("connected too", Pixels((200, 8, 8)), layers, sources=sources)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_of_pixels_that_a_large_layer_reads(precision: str) -> None:
    network, arithmetic = connected_too(), ARITHMETICS[precision]
    todo = to_do(network.stages, HOPPER)
    assert any(is_large(each, HOPPER) and each.takes == (-1,) for each in todo)
    assert not can_arrive(todo, HOPPER)
    choice = choose(network.stages, arithmetic, 90)
    images = np.random.default_rng(1).integers(0, 256, (3, *network.input.shape), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
    kernels = build(network.stages, arithmetic, 90, choice)
    assert compare(interpret(kernels, network, images), truth[-1])[1] is None
    with pytest.raises(TilewrightError, match=r"options\.apart"):
        build(network.stages, arithmetic, 90, structs.replace(choice, apart=(-1,)))


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_tuner_and_saved_plans(precision: str) -> None:
    """What makes words of pixels has no name."""
    network, arithmetic = wide(200, 9, 9), ARITHMETICS[precision]
    choice = choose(network.stages, arithmetic, 90)
    others = list(alternatives(network.stages, arithmetic, 90))
    assert others and {each.apart for each in others} == {(-1,)}
    with pytest.raises(TilewrightError, match="they leave the input out"):
        build(network.stages, arithmetic, 90, structs.replace(choice, kernels=()))


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_of_few_images_too(precision: str) -> None:
    network, arithmetic = wide(200, 9, 9), ARITHMETICS[precision]
    choice = with_few(choose(network.stages, arithmetic, 90), network.stages, arithmetic, 90)
    few = few_of(choice, 64)
    assert few is not None and few.apart == (-1,) and few.kernels[0] == Passed()
    kernels = build(network.stages, arithmetic, 90, choice, few)
    images = np.random.default_rng(1).integers(0, 256, (3, *network.input.shape), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
    assert compare(interpret(kernels, network, images), truth[-1])[1] is None
    wrong = Few(few.images, few.kernels)
    with pytest.raises(TilewrightError, match=r"options\.kernels"):
        build(network.stages, arithmetic, 90, choice, wrong)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_of_pixels_that_others_read(precision: str) -> None:
    network, arithmetic = several(48), ARITHMETICS[precision]
    todo = with_arriving(to_do(network.stages, HOPPER), HOPPER)
    assert [each.takes for each in todo[:2]] == [(-1,), (0,)]
    assert not any(-1 in each.takes for each in todo[1:])
    choice = choose(network.stages, arithmetic, 90)
    assert choice.apart == (-1,)
    images = np.random.default_rng(1).integers(0, 256, (5, *network.input.shape), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
    kernels = build(network.stages, arithmetic, 90, choice)
    assert compare(interpret(kernels, network, images), truth[-1])[1] is None


def test_where_pixels_are_read_as_they_are() -> None:
    """Few channels; no convolution comes first; no patches."""
    few, many = wide(31, 9, 9), wide(48, 9, 9)
    connected = Network("connected", Pixels((48, 2, 2)), (FullyConnected(500), FullyConnected(5)))
    old = generation(80)
    assert can_arrive(to_do(many.stages, HOPPER), HOPPER)
    for network, gpu in ((few, HOPPER), (connected, HOPPER), (many, old)):
        todo = to_do(network.stages, gpu)
        assert not can_arrive(todo, gpu)
        with pytest.raises(TilewrightError, match=r"options\.apart"):
            with_arriving(todo, gpu)


@pytest.mark.cuda
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("network", [wide(200, 9, 9), wide(71, 1, 50), several(48)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_on_a_gpu(precision: str, network: Network) -> None:
    runtime = CudaRuntime(CUDA)
    if runtime.capability != 90:
        pytest.skip("no Hopper GPU")
    choice = choose(network.stages, ARITHMETICS[precision], 90)
    fused = FusedNetwork(runtime, "network", precision, network.stages, network.parameters, choice)
    images = np.random.default_rng(1).integers(0, 256, (300, *network.input.shape), np.uint8)
    precise = ARITHMETICS[precision].precision
    truth = reference.chain(network.stages, network.parameters, images[-4:], precise)[-1]
    out = runtime.allocate((300, *network.output_shape))
    out.fill(np.nan)
    fused(runtime.upload(images), out)
    found = runtime.download(out)
    assert np.isfinite(found).all()
    assert compare(found[-4:], truth)[1] is None
