"""Launching whole-network kernels, on a runtime that only notes what it is told."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import msgspec
import numpy as np
import pytest

from tilewright.fuse.cuda import run as module
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.choice import Stacked
from tilewright.fuse.cuda.cut import choose, with_few
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model import zoo
from tilewright.model.layers import Add, Concat, Convolution, FullyConnected, Pixels, ReLU
from tilewright.model.network import Network
from tilewright.rungs import find
from tilewright.runtime import GpuKernel
from tilewright.truth.trials import random_parameters


class Noted:
    """Arrays in host memory; kernels that do nothing."""

    limits = SimpleNamespace(processors=132)

    def __init__(self, capability: int) -> None:
        self.capability = capability
        self.texts: dict[str, str] = {}
        self.launches: list[tuple] = []

    def allocate(self, shape, dtype=np.float32):
        return np.empty(shape, dtype)

    def upload(self, array):
        return array.copy()

    def write(self, buffer, array):
        buffer[:] = array

    def compile_text(self, name, text, threads, shared_bytes):
        self.texts[name] = text
        return GpuKernel(name, (threads, 1, 1), None, shared_bytes=shared_bytes)

    def enqueue(self, kernel, grid, arguments, layers, cost=None):
        self.launches.append((kernel.name, grid, arguments, layers, cost))


def fused(
    network: Network, precision: str = "fp16", capability: int = 90, **options
) -> tuple[FusedNetwork, Noted]:
    runtime = Noted(capability)
    ready = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    choice = choose(ready.stages, ARITHMETICS[precision], runtime.capability)
    choice = msgspec.structs.replace(choice, **options)
    made = FusedNetwork(runtime, "network", precision, ready.stages, ready.parameters, choice)
    return made, runtime


def one_kernel(network: Network, precision: str = "fp16") -> tuple[Stacked]:
    """All of a network, as the best that takes it whole."""
    todo = to_do(network.stages, HOPPER)
    _, found = arranged(ARITHMETICS[precision], todo, HOPPER)
    return (Stacked(len(todo), *found),)


def images(network: Network, count: int, dtype=np.uint8) -> tuple[np.ndarray, np.ndarray]:
    x = np.zeros((count, *network.input.shape), dtype)
    return x, np.empty((count, *network.output_shape), np.float32)


def test_one_launch_for_the_whole_network() -> None:
    network = zoo.network("cifar10")
    made, runtime = fused(network, kernels=one_kernel(network))
    made(*images(network, 1000))
    ((name, grid, arguments, layers, cost),) = runtime.launches
    assert name == "network_fp16"
    assert grid == (132, 1, 1)
    assert arguments[-1] == 1000
    assert layers == tuple(stage.name for stage in network.stages)
    assert cost.flops == 1000 * network.flops
    weights = 4 * made.plans[0].parameter_words["all"]
    assert cost.bytes == 1000 * (3072 + 40) + weights


def test_few_images_take_few_blocks() -> None:
    network = zoo.network("cifar10")
    made, runtime = fused(network)
    made(*images(network, 5))
    assert runtime.launches[0][1] == (5, 1, 1)


def test_float_images_have_a_kernel_of_their_own() -> None:
    network = zoo.network("cifar10")
    made, runtime = fused(network, kernels=one_kernel(network))
    made.compile_for(pixels=True, images=2)
    series = made.series_of(2)
    assert set(series.compiled) == {(0, "uint8")}
    made(*images(network, 2, np.float32))
    assert "const float* images" in runtime.texts["network_fp16"]
    assert set(series.compiled) == {(0, "uint8"), (0, "float32")}


@pytest.mark.parametrize("count, blocks, parts", [(1, 1, 16), (80, 1, 16), (1000, 13, 10)])
def test_blocks_share_sums_where_images_are_few(count: int, blocks: int, parts: int) -> None:
    network = zoo.network("ece408")
    made, runtime = fused(network, capability=80)
    made(*images(network, count))
    first, second = runtime.launches
    assert first[0] == "network_fp16_conv1_to_conv2"
    assert first[3] == ("input", "conv1", "tanh1", "pool", "conv2")
    assert second[0] == "network_fp16_fc1_to_softmax"
    assert second[1] == (blocks, parts, 1)
    # Features pass from one to the other, and there is room for every block's part of a sum.
    assert first[2][1] is second[2][0]
    series = made.series_of(count)
    assert series.parts.size >= blocks * parts * series.plans[1].part_floats
    alone, runtime = fused(network, capability=80, share_sums=False)
    alone(*images(network, count))
    assert runtime.launches[1][1] == (blocks, 1, 1)


def test_few_images_have_kernels_of_their_own() -> None:
    """Three sizes of batches: of one image, of a few, of many."""
    network = zoo.network("ece408")
    ready = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    choice = with_few(
        choose(network.stages, ARITHMETICS["fp32"], 90), network.stages, ARITHMETICS["fp32"], 90
    )
    assert choice.few_up_to >= 16
    runtime = Noted(90)
    made = FusedNetwork(runtime, "network", "fp32", ready.stages, ready.parameters, choice)
    for count in (1, 16, 1000):
        made(*images(network, count))
    names = [launch[0] for launch in runtime.launches]
    assert names == [
        "network_fp32_conv1_to_pool", "network_fp32_conv2", "network_fp32_fc1_to_tanh2",
        "network_fp32_fc2_to_softmax",
    ] * 2 + [
        "network_fp32_conv1_to_conv2", "network_fp32_fc1_to_tanh2_many",
        "network_fp32_fc2_to_softmax_few",
    ]  # fmt: skip
    grids = [launch[1] for launch in runtime.launches]
    for one, few in zip(grids[:4], grids[4:8], strict=True):
        assert math.prod(one) <= math.prod(few) or few[2] > 1
    # A layer's work is over most multiprocessors, also of one image; and there is room for parts.
    series = made.series_of(1)
    assert math.prod(grids[1]) > 100 and math.prod(grids[2]) > 100
    for grid, plan in zip(grids[:4], series.plans, strict=True):
        assert grid[2] == 1 or series.parts.size >= math.prod(grid) * plan.part_floats
    # Others that work beside it have the same weights, and memory of their own.
    other = made.beside(runtime).series_of(1)
    assert other.weights is series.weights and other.parts is not series.parts


def test_large_batches_go_through_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    network = zoo.network("ece408")
    made, runtime = fused(network, capability=80)
    monkeypatch.setattr(module, "SCRATCH_BYTES", 4 * made.plans[0].result_words * 30)
    made(*images(network, 70))
    assert [launch[2][-1] for launch in runtime.launches] == [30, 30, 30, 30, 10, 10]


def test_a_network_that_begins_with_a_large_layer_converts_its_pixels_first() -> None:
    network = Network("rows", Pixels((3, 20, 20)), (FullyConnected(90), ReLU(), FullyConnected(5)))
    made, runtime = fused(network, capability=80)
    made(*images(network, 3))
    assert [launch[0] for launch in runtime.launches] == [
        "network_fp16_input",
        "network_fp16_fc1_to_fc2",
    ]


def test_kernels_are_given_what_several_others_left() -> None:
    """The second adds what the first gave; the third joins what both gave, and the pixels."""
    layers = (Convolution(8, 3, padding=1), Convolution(8, 3, padding=1), Add(), Concat())
    network = Network("net", Pixels((3, 64, 64)), layers, sources=((0,), (1,), (2, 1), (3, 1, 0)))
    with mock.patch.dict(GENERATIONS, {90: replace(HOPPER, shared_bytes=20_000)}):
        made, runtime = fused(network)
        x, out = images(network, 3)
        made(x, out)
    first, second, third = runtime.launches
    assert [launch[3] for launch in runtime.launches] == [
        ("input", "conv1"), ("conv2", "add"), ("concat",),
    ]  # fmt: skip
    gave = first[2][1]
    # In, out, parameters, tables, count; then the others.
    assert second[2][0] is gave
    assert len(second[2]) == 5
    assert np.shares_memory(third[2][0], x)
    assert np.shares_memory(third[2][1], out)
    assert third[2][5] is second[2][1]
    assert third[2][6] is gave
    assert "const unsigned char* images" in runtime.texts["network_fp16_concat"]
    assert "const word* other1, const word* other2" in runtime.texts["network_fp16_concat"]
    # What is read and written, and the weights.
    moved = 3 * (3 * 64 * 64 + 2 * gave[0].nbytes + out[0].nbytes)
    assert third[4].bytes == moved


def test_parameters_are_sent_again() -> None:
    made, _ = fused(zoo.network("cifar10"))
    sent = made.series_of(1).sent
    assert sent
    for buffer, _ in sent:
        buffer[:] = 0
    made.send_parameters()
    assert all((buffer == words).all() and words.any() for buffer, words in sent)


def test_every_precision_is_verified_in_all_its_ways() -> None:
    rung = find("network")
    for precision in rung.precisions:
        chosen = rung.at(precision.name)
        assert chosen.precision == precision
        assert chosen.label == f"network {precision.name}"
        many, alone, few = chosen.ways
        assert (many["few_up_to"], alone["few_up_to"], alone["share_sums"]) == (0, 0, False)
        assert few["few_up_to"] > 10**6
