"""The text of whole-network kernels, compiled for several architectures without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from unittest import mock

import pytest
from benchmarks.cpu import networks
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.kept import compile_cubin
from tests.rungs.gpu.kernels import ACTIVATIONS
from tests.strategies import networks as drawn_networks
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import (
    Kernel,
    build,
    choose,
    cut,
    for_few,
    sources,
)
from tilewright.fuse.cuda.few import choose_few
from tilewright.fuse.cuda.generations import GENERATIONS, generation
from tilewright.fuse.cuda.limits import lane_registers
from tilewright.fuse.cuda.run import kernel_text
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.tiles import Tiles
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Take,
)
from tilewright.model.network import Network
from tilewright.runtime import nvrtc
from tilewright.runtime.multiprocessor import architecture
from tilewright.truth.odd import GRAPHS

pytestmark = pytest.mark.skipif(nvrtc.missing() is not None, reason=str(nvrtc.missing()))
NETWORKS = {network.name: network for network in networks()}
# Every network once, but for the largest (below); those other precisions and architectures that a
# small one with both pictures and rows shows. All of them everywhere take the compiler minutes.
LARGEST = "cifar64"
CASES = [(name, 90, "fp16") for name in NETWORKS if name != LARGEST] + [
    ("lenet5", 90, "tf32"),
    ("lenet5", 90, "tf32x3"),
    ("lenet5", 90, "fp32"),
    ("lenet5", 80, "fp16"),
    ("lenet5", 120, "fp16"),
]


def compiled(
    network: Network,
    precision: str,
    capability: int,
    compile_text=compile_cubin,
    wanted: Callable[[Kernel], bool] = lambda plan: True,
) -> list[nvrtc.Compiled]:
    found = []
    plans = cut(network.stages, ARITHMETICS[precision], capability)
    for plan, source in zip(plans, sources(plans, "uint8"), strict=True):
        if not wanted(plan):
            continue
        assert plan.shared_bytes <= generation(capability).shared_bytes
        text = kernel_text(plan, "network", network.input, source)
        made = compile_text("network", text, architecture(capability))
        assert made.registers <= lane_registers(plan.threads // 32)
        found.append(made)
    return found


@pytest.mark.parametrize("name, capability, precision", CASES)
def test_every_benchmark_network(name: str, capability: int, precision: str) -> None:
    keep_in_registers(compiled(NETWORKS[name], precision, capability))


def test_strips_through_several_layers_in_words() -> None:
    """Of the largest network, that kernel alone: the others are like those of smaller networks, and
    take the compiler 15 s."""

    def strips(plan: Kernel) -> bool:
        return isinstance(plan, Stack) and plan.strip is not None

    (made,) = compiled(NETWORKS[LARGEST], "tf32", 80, wanted=strips)
    keep_in_registers([made])


def keep_in_registers(kernels: list[nvrtc.Compiled]) -> None:
    for made in kernels:
        assert made.cubin
        # A few words for the odd register too many; arrays in local memory would be kilobytes.
        assert made.spilled_bytes < 400
        assert made.stack_bytes < 200


@examples(3)
@given(drawn_networks(), st.sampled_from(list(ARITHMETICS)), st.sampled_from([80, 90, 120]))
def test_networks_of_any_shape(network: Network, precision: str, capability: int) -> None:
    assert compiled(network, precision, capability, nvrtc.compile_cubin)  # not worth keeping


def test_every_activation() -> None:
    """Before a maximum of their results or behind one, and in rows."""
    layers: list[Layer] = [FullyConnected(5)]
    for activation in ACTIVATIONS:
        layers = [Convolution(4, 3, padding=2), activation, MaxPool(2), *layers, activation]
    network = Network("activations", Pixels((3, 12, 10)), tuple(layers))
    for made in compiled(network, "fp32", 90):
        assert made.spilled_bytes == 0


def test_many_fully_connected_layers() -> None:
    """From the fourth on, ends of rows are emptied."""
    outputs = (130, 70, 33, 5, 3)
    network = Network("rows", Pixels((3, 8, 8)), tuple(map(FullyConnected, outputs)))
    *_, made = compiled(network, "fp16", 80)
    assert made.spilled_bytes == 0


@pytest.mark.parametrize(
    "network, capability, precision, kept",
    [(GRAPHS[0], 80, "tf32", 2**17), (GRAPHS[1], 120, "fp16", 2**16),
     (GRAPHS[2], 90, "fp16", 1000), (GRAPHS[3], 90, "fp32", 2000),
     (GRAPHS[4], 90, "fp16", 2**17)],
    ids=[network.name for network in GRAPHS],
)  # fmt: skip
def test_networks_that_branch(network: Network, capability: int, precision: str, kept: int) -> None:
    """In one kernel, and where kernels read what several others gave."""
    gpu = replace(GENERATIONS[capability], shared_bytes=kept)
    with mock.patch.dict(GENERATIONS, {capability: gpu}):
        kernels = compiled(network, precision, capability)
    assert (len(kernels) > 1) == (kept < 2**16)
    for made in kernels:
        assert made.spilled_bytes == 0


def test_layers_out_of_the_ordinary() -> None:
    layers = (
        Convolution(6, 3, groups=3), AveragePool(3, stride=2, padding=1, count_padding=True),
        Convolution(12, 3, groups=6), MaxPool(2, ceil=True),
        Convolution(6, 2, groups=2, dilation=2), Take([0, 0, 3, 2, 2], [1, 0, 1, 2, 3, 3]),
    )  # fmt: skip
    pixels = Pixels((3, 30, 30), scale=(1.0, 2.0, 3.0))
    (made,) = compiled(Network("odd", pixels, layers), "fp16", 90)
    assert made.spilled_bytes == 0


def test_layers_that_are_alike() -> None:
    """A loop over them, with a table of where each one's things lie."""
    layers = [Convolution(16, 3, padding=1) for _ in range(6)]
    (made,) = compiled(Network("alike", Pixels((3, 12, 12)), tuple(layers)), "fp16", 90)
    assert made.spilled_bytes == 0
    assert made.constant_bytes


@pytest.mark.parametrize("capability", [80, 90])
def test_residual_blocks_that_are_alike(capability: int) -> None:
    """A loop over what differs: a block's second convolution adds what the block began with, the
    last of all gives the kernel's result."""
    block = Convolution(16, 3, padding=1), ReLU(), Convolution(16, 3, padding=1), Add(), ReLU()
    sources = [(0,), (1,)]
    for first in range(2, 17, 5):
        one, two, three, four, five = range(first, first + 5)
        sources += [(one,), (two,), (three,), (four, one), (five,)]
    layers = (Convolution(16, 3, padding=1), ReLU(), *block * 3)
    network = Network("blocks", Pixels((3, 12, 12)), layers, sources=tuple(sources))
    for precision in ("fp16", "fp32"):
        (made,) = compiled(network, precision, capability)
        assert made.spilled_bytes == 0
        assert made.constant_bytes


def test_tiles_of_few_images() -> None:
    """Pixels with pooling, words with something added, and rows with softmax."""
    layers = (
        Convolution(8, 3), MaxPool(2), Convolution(8, 3, padding=1), Add(), FullyConnected(5),
        Softmax(),
    )  # fmt: skip
    sources_of = ((0,), (1,), (2,), (2, 3), (4,), (5,))
    network = Network("net", Pixels((3, 10, 10)), layers, sources=sources_of)
    arithmetic = ARITHMETICS["fp16"]
    choice = choose(network.stages, arithmetic, 80)
    spread = choose_few(to_do(network.stages, for_few(generation(80))), arithmetic,
                        for_few(generation(80)), 4, lambda part: [])  # fmt: skip
    assert spread is not None
    plans = build(network.stages, arithmetic, 80, choice, spread)
    assert [type(plan) for plan in plans] == [Tiles] * 3
    for plan, source in zip(plans, sources(plans, "uint8"), strict=True):
        text = kernel_text(plan, "tiles", network.input, source)
        made = compile_cubin("tiles", text, "sm_80")
        assert made.registers <= 65536 // plan.threads and not made.spilled_bytes
