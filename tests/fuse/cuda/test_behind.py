"""Channels behind each other as a kernel of its own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.fuse.cuda import on_host
from tests.fuse.cuda.interpreter import interpret, run_behind
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.behind import Behind, behind
from tilewright.fuse.cuda.choice import Choice, Passed, Stacked
from tilewright.fuse.cuda.cut import build, choose, cut, few_of, with_few
from tilewright.fuse.cuda.emit_passing import passing_text
from tilewright.fuse.cuda.few import spread, tiles_as
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.fuse.cuda.tiles_choice import best_tiles
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Add,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    Pixels,
    ReLU,
    Tanh,
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
PRECISIONS = ["fp16", "tf32", "fp32"]


def grown(first: int, more: int, activation: Layer | None = None, side: int = 16) -> Network:
    """A picture, and what a convolution makes of it, behind each other; then one of both, and the
    three behind each other."""
    layers: list[Layer] = [Convolution(first, 3, padding=1), Convolution(more, 3, padding=1),
                           Concat()]  # fmt: skip
    sources: list[tuple[int, ...]] = [(0,), (1,), (1, 2)]
    if activation:
        layers.append(activation)
        sources.append((3,))
    layers += [Convolution(more, 3, padding=1), Concat(), Convolution(8, 1)]
    at = len(sources)
    sources += [(at,), (1, 2, at + 1), (at + 2,)]
    made = Network("grown", Pixels((3, side, side)), tuple(layers), sources=tuple(sources))
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def of(network: Network, precision: str) -> list[Behind]:
    every = (behind(ARITHMETICS[precision], each) for each in to_do(network.stages, HOPPER))
    return [each for each in every if each]


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("activation", [None, ReLU()])
@pytest.mark.parametrize("channels", [(8, 4), (6, 10), (12, 24), (16, 2)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_all_words_are_where_they_belong(
    precision: str, channels: tuple[int, int], activation: Layer | None
) -> None:
    """The kernel's own text, run here: more threads than words, fewer, and others left over."""
    arithmetic, plans = ARITHMETICS[precision], of(grown(*channels, activation), precision)
    assert len(plans) == 2
    for plan in plans:
        generator = np.random.default_rng(0)
        shapes = [(3, plan.pixels, words, arithmetic.per_word) for words in plan.parts]
        taken = [
            arithmetic.operands(generator.normal(size=shape).astype(np.float32)).reshape(3, -1)
            for shape in shapes
        ]
        expected = run_behind(plan, taken)
        for step in (7, 1000, 20_000):
            assert np.array_equal(on_host.put_behind(plan, taken, 3, step), expected)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_they_are_kernels_of_their_own_for_few_images_and_many(precision: str) -> None:
    network, arithmetic = grown(96, 32, side=32), ARITHMETICS[precision]
    choice = with_few(choose(network.stages, arithmetic, 90), network.stages, arithmetic, 90)
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 32, 32), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    for count in (1, 1000):
        kernels = build(network.stages, arithmetic, 90, choice, few_of(choice, count))
        assert any(isinstance(each, Behind) for each in kernels)
        assert compare(interpret(kernels, network, images), truth)[1] is None


def chosen(network: Network, precision: str) -> Choice:
    """A kernel for each operation, and these where they can be."""
    arithmetic = ARITHMETICS[precision]
    todo = to_do(network.stages, HOPPER)
    kernels = [Passed() if behind(arithmetic, each) else Stacked(1, 0, 8, 1, 0.1) for each in todo]
    return Choice(HOPPER.name, tuple(kernels))


@pytest.mark.parametrize("activation", [None, ReLU(), Tanh()])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_activations_come_with_it(precision: str, activation: Layer | None) -> None:
    network, arithmetic = grown(8, 4, activation), ARITHMETICS[precision]
    kernels = build(network.stages, arithmetic, 90, chosen(network, precision))
    assert sum(isinstance(each, Behind) for each in kernels) == 2
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 16, 16), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    assert compare(interpret(kernels, network, images), truth)[1] is None
    for plan in of(network, precision):
        text = passing_text(plan, "behind", None, "words")
        assert compile_cubin("behind", text, "sm_90a").spilled_bytes == 0


def test_which_cannot_be() -> None:
    """Halves that share a word with another picture's, what is added, the network's output."""
    assert not of(grown(7, 3), "fp16") and len(of(grown(7, 3), "fp32")) == 2
    layers = (Convolution(4, 1), Convolution(4, 1), Concat(), Add())
    sources = ((0,), (1,), (1, 2), (3, 3))
    output = Network("net", Pixels((3, 8, 8)), layers, sources=sources)
    assert [each.names for each in of(output, "fp32")] == [("concat",)]
    output = Network("net", Pixels((3, 8, 8)), layers[:3], sources=sources[:3])
    assert not of(output, "fp32")


def test_not_where_rows_are_longer_than_what_it_gives() -> None:
    """As a large fully connected layer reads them where there are no panels."""
    layers = (Convolution(40, 3, padding=1), ReLU(), Convolution(20, 3, padding=1), Concat(),
              Flatten(), FullyConnected(10))  # fmt: skip
    sources = ((0,), (1,), (2,), (2, 3), (4,), (5,))
    bare = Network("net", Pixels((3, 21, 21)), layers, sources=sources)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    images = np.random.default_rng(1).integers(0, 256, (3, 3, 21, 21), np.uint8)
    for capability, precision in itertools.product((80, 86), PRECISIONS):
        arithmetic = ARITHMETICS[precision]
        kernels = cut(network.stages, arithmetic, capability)
        assert not any(isinstance(each, Behind) for each in kernels)
        truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)
        assert compare(interpret(kernels, network, images), truth[-1])[1] is None


def test_nor_do_tiles_write_what_is_read_in_other_rows() -> None:
    """They write words; a large fully connected layer reads panels, or longer rows."""
    layers = Convolution(8, 3, padding=1), Convolution(40, 3, padding=1), FullyConnected(10)
    stages = Network("net", Pixels((3, 21, 21)), layers).stages
    for gpu in (HOPPER, GENERATIONS[86]):
        between, before_large = to_do(stages, gpu)[:2]
        for operation, there in ((between, True), (before_large, False)):
            plan = best_tiles(ARITHMETICS["fp32"], (operation,), gpu, 1)
            assert plan
            found = tiles_as(spread(plan), ARITHMETICS["fp32"], (operation,), gpu)
            assert (found is not None) == there


@pytest.mark.cuda
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("activation", [None, Tanh()])
@pytest.mark.parametrize("channels", [(8, 4), (6, 10), (48, 24)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_on_a_gpu(precision: str, channels: tuple[int, int], activation: Layer | None) -> None:
    network, runtime = grown(*channels, activation), CudaRuntime(CUDA)
    if runtime.capability != 90:
        pytest.skip("no Hopper GPU")
    fused = FusedNetwork(runtime, "network", precision, network.stages, network.parameters,
                         chosen(network, precision))  # fmt: skip
    images = np.random.default_rng(0).integers(0, 256, (200, *network.input.shape), np.uint8)
    some = [*range(3), *range(195, 200)]
    precise = ARITHMETICS[precision].precision
    truth = reference.chain(network.stages, network.parameters, images[some], precise)[-1]
    out = runtime.allocate((200, *network.output_shape))
    for count in (1, 200):
        out.fill(np.nan)
        fused(runtime.upload(images[:count]), out[:count])
    found = runtime.download(out)
    assert np.isfinite(found).all()
    assert compare(found[some], truth)[1] is None
