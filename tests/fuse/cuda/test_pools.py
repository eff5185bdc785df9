"""Pooling as a kernel of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.fuse.cuda import on_host
from tests.fuse.cuda.interpreter import interpret, run_pools
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.choice import Choice, Passed, Stacked
from tilewright.fuse.cuda.cut import build
from tilewright.fuse.cuda.emit_passing import passing_text
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.pools import Pools, pools
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Layer,
    MaxPool,
    Pixels,
    Pooling,
    ReLU,
    Sigmoid,
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
PRECISIONS = ["fp16", "tf32", "tf32x3", "fp32"]
# Windows that overlap, that leave rows out, that stick out on some sides or on all, larger ones
# than are written out, and averages that count what is around the picture, or do not.
POOLINGS = (
    MaxPool(3, stride=2), MaxPool(2, stride=3), MaxPool(3, stride=2, padding=1),
    MaxPool((1, 4), stride=(2, 3), padding=(0, 1, 0, 2)), MaxPool(2, ceil=True),
    MaxPool(5, stride=1), AveragePool(3, stride=2), AveragePool((2, 3), stride=1, padding=1),
    AveragePool(3, stride=2, padding=1, count_padding=True),
    AveragePool(3, stride=2, ceil=True, count_padding=True), AveragePool(13, stride=1),
)  # fmt: skip


def pooled(pooling: Pooling, channels: int = 8, activation: Layer | None = None) -> Network:
    layers = (Convolution(channels, 3, padding=1), Tanh(), pooling,
              *([activation] if activation else []), Convolution(4, 1))  # fmt: skip
    made = Network("pooled", Pixels((3, 13, 17)), layers)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def of(network: Network, precision: str) -> Pools:
    (plan,) = filter(None, (pools(ARITHMETICS[precision], each)
                            for each in to_do(network.stages, HOPPER)))  # fmt: skip
    return plan


def words(plan: Pools, count: int, *, spoiled: bool = False) -> Any:
    """Pictures, one value of which is none if they are `spoiled`."""
    channels, height, width = plan.operation.source
    shape = count, height, width, channels // plan.arithmetic.per_word, plan.arithmetic.per_word
    values = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    if spoiled:
        values[0, 4, 5, 0, 0] = np.nan
    return plan.arithmetic.operands(values).reshape(count, -1)


@pytest.mark.skipif(on_host.missing() is not None, reason=str(on_host.missing()))
@pytest.mark.parametrize("number", range(len(POOLINGS)), ids=lambda n: POOLINGS[n].summary)
@pytest.mark.parametrize("precision", ["fp16", "tf32", "fp32"])
def test_every_window_is_what_it_should_be(precision: str, number: int) -> None:
    """The kernel's own text, run here: more threads than words, fewer, and others left over."""
    plan = of(pooled(POOLINGS[number], (8, 6, 2, 12)[number % 4]), precision)
    given = words(plan, 3, spoiled=number % 2 == 1)
    expected = run_pools(plan, given)
    for step in (7, 20_000):
        assert np.array_equal(on_host.put_pooled(plan, given, 3, step), expected)


@pytest.mark.parametrize("activation", [None, ReLU(), Sigmoid()])
@pytest.mark.parametrize("pooling", POOLINGS[::3], ids=lambda each: each.summary)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_between_other_kernels(precision: str, pooling: Pooling, activation: Layer | None) -> None:
    network, arithmetic = pooled(pooling, 8, activation), ARITHMETICS[precision]
    kernels = build(network.stages, arithmetic, 90, chosen(network, precision))
    assert sum(isinstance(each, Pools) for each in kernels) == 1
    images = np.random.default_rng(1).integers(0, 256, (2, 3, 13, 17), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    assert compare(interpret(kernels, network, images), truth)[1] is None
    plan = of(network, precision)
    text = passing_text(plan, "pools", None, "words")
    assert compile_cubin("pools", text, "sm_90a").spilled_bytes == 0


def chosen(network: Network, precision: str) -> Choice:
    """A kernel for each operation, and these where they can be."""
    arithmetic = ARITHMETICS[precision]
    todo = to_do(network.stages, HOPPER)
    kernels = [Passed() if pools(arithmetic, each) else Stacked(1, 0, 8, 1, 0.1) for each in todo]
    return Choice(HOPPER.name, tuple(kernels))


@pytest.mark.cuda
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize("pooling", POOLINGS, ids=lambda each: each.summary)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_on_a_gpu(precision: str, pooling: Pooling) -> None:
    network, runtime = pooled(pooling, 6, ReLU()), CudaRuntime(CUDA)
    if runtime.capability != 90:
        pytest.skip("no Hopper GPU")
    fused = FusedNetwork(runtime, "network", precision, network.stages, network.parameters,
                         chosen(network, precision))  # fmt: skip
    images = np.random.default_rng(1).integers(0, 256, (300, 3, 13, 17), np.uint8)
    precise = ARITHMETICS[precision].precision
    truth = reference.chain(network.stages, network.parameters, images[-4:], precise)[-1]
    out = runtime.allocate((300, *network.output_shape))
    out.fill(np.nan)
    fused(runtime.upload(images), out)
    found = runtime.download(out)
    assert np.isfinite(found).all()
    assert compare(found[-4:], truth)[1] is None


def test_which_cannot_be() -> None:
    """Halves that share a word with nothing, what is no pooling, and the network's output."""

    def none(network: Network, precision: str) -> bool:
        todo = to_do(network.stages, HOPPER)
        return not any(pools(ARITHMETICS[precision], each) for each in todo)

    assert none(pooled(MaxPool(3), 7), "fp16") and not none(pooled(MaxPool(3), 7), "fp32")
    last = Network("net", Pixels((3, 8, 8)), (Convolution(8, 1), MaxPool(3)))
    assert none(last, "fp32")
    first = Network("net", Pixels((3, 8, 8)), (MaxPool(3), Convolution(8, 1)))
    assert none(first, "fp32")
