"""Networks that branch, as whole-network kernels: pictures that live longer, and cuts."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import run_program
from tests.fuse.cuda.memory import Mistake
from tests.fuse.cuda.test_not_finite import check_others
from tests.fuse.cuda.test_schedule import problem
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.cut import cut
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.operations import operations
from tilewright.fuse.cuda.program import program
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.steps import Border, Convolve, Join
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model.layers import (
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    Layer,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth.odd import GRAPHS
from tilewright.truth.trials import random_parameters

PRECISIONS = list(ARITHMETICS)


def ready(network: Network, seed: int = 0) -> Network:
    return network.with_parameters(random_parameters(network, np.random.default_rng(seed)))


def images_of(network: Network, count: int = 2) -> np.ndarray:
    size = (count, *network.input.shape)
    return np.random.default_rng(1).normal(size=size).astype(np.float32)


def little(kept: int):
    """A GPU with less memory for a block, where strips are held to cost nothing more."""
    tensor = replace(HOPPER.tensor, strips=1)
    return mock.patch.dict(GENERATIONS, {90: replace(HOPPER, shared_bytes=kept, tensor=tensor)})


def residual(channels: int, height: int, width: int) -> Network:
    """A block between two convolutions; rows of it add up to 16 columns of tiles."""
    layers = (
        *(Convolution(channels, 3, padding=1), ReLU(), Convolution(channels, 3, padding=1)),
        *(ReLU(), Convolution(channels, 3, padding=1), Add(), ReLU(), Convolution(4, 3)),
    )
    sources = ((0,), (1,), (2,), (3,), (4,), (5, 2), (6,), (7,))
    return Network("residual", Pixels((3, height, width)), layers, sources=sources)


def resnet8() -> Network:
    """MLPerf Tiny's: three blocks, two of them with a convolution of one tap beside."""
    layers: list[Layer] = [Convolution(16, 3, padding=1), ReLU()]
    sources: list[tuple[int, ...]] = [(0,), (1,)]

    def put(layer: Layer, *taken: int) -> int:
        layers.append(layer)
        sources.append(taken)
        return len(layers)

    x = 2
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        around = 1 if stride == 1 else (0, 0, 1, 1)
        y = put(ReLU(), put(Convolution(filters, 3, stride=stride, padding=around), x))
        y = put(Convolution(filters, 3, padding=1), y)
        other = x if stride == 1 else put(Convolution(filters, 1, stride=stride), x)
        x = put(ReLU(), put(Add(), y, other))
    put(Softmax(), put(FullyConnected(10), put(AveragePool(8), x)))
    return Network("resnet8", Pixels((3, 32, 32)), tuple(layers), sources=tuple(sources))


def test_a_residual_network_fits_one_kernel() -> None:
    """As the README says it."""
    network = ready(resnet8())
    plan, _ = arranged(ARITHMETICS["fp16"], to_do(network.stages, HOPPER), HOPPER)
    assert len(plan.operations) == 12
    assert 4 * plan.group_words == 97_664
    images = np.random.default_rng(2).integers(0, 256, (1, 3, 32, 32), np.uint8)
    assert problem(network, images, "fp16", [plan]) is None


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("network", GRAPHS, ids=lambda network: network.name)
def test_cut_anywhere(network: Network, precision: str) -> None:
    """With less and less shared memory: kernels read what several others gave."""
    made = ready(network)
    counts = set()
    for kept in (2**17, 2200, 1000):
        with little(kept if precision == "fp16" else 2 * kept), suppress(DoesNotFit):
            kernels = cut(made.stages, ARITHMETICS[precision], 90)
            assert problem(made, images_of(made), precision, kernels) is None, kept
            counts.add(len(kernels))
    assert 1 in counts
    assert max(counts) > 1


@pytest.mark.parametrize("network", GRAPHS, ids=lambda network: network.name)
def test_every_image_for_itself(network: Network) -> None:
    made = ready(network)
    for kept in (2**17, 2200):
        with little(kept):
            check_others(made, cut(made.stages, ARITHMETICS["fp16"], 90), images_of(made, 3))


def test_a_residual_is_added_where_sums_end_and_overwritten() -> None:
    network = ready(residual(16, 16, 16))
    (plan,) = cut(network.stages, ARITHMETICS["fp16"], 90)
    assert isinstance(plan, Stack)
    assert plan.layout
    assert [each.names for each in plan.operations] == [
        ("conv1", "relu1"), ("conv2", "relu2"), ("conv3", "add", "relu3"), ("conv4",),
    ]  # fmt: skip
    first, _, last, _ = plan.phases
    assert last.gives == first.gives
    # The pixels, what is added and overwritten, and what lies between.
    assert len(plan.pictures) == 3
    made = program(plan, network.input, "float32")
    assert sum(isinstance(step, Border) for step in made.item) == 3
    (added,) = [step.added for step in made.item if isinstance(step, Convolve) and step.added]
    assert added.at == plan.place(first.gives)


def test_rows_that_are_computed_twice_are_not_added_twice() -> None:
    """The last block of rows overlaps the one before: results need another place."""
    for height in (7, 13):
        network = ready(residual(5, height, 9))
        assert problem(network, images_of(network), "fp16") is None
        assert problem(network, images_of(network), "tf32") is None


def test_what_is_added_must_lie_where_it_is_looked_for() -> None:
    """A wrong place of it, or a border that is not emptied, is found."""
    network = ready(residual(6, 8, 8))
    images = images_of(network)
    (plan,) = cut(network.stages, ARITHMETICS["fp16"], 90)
    assert isinstance(plan, Stack)
    made = program(plan, network.input, "float32")
    right = run_program(made, plan, network, images)
    for place, step in enumerate(made.item):
        if isinstance(step, Convolve) and step.added:
            assert step.added.at is not None
            moved = replace(step, added=replace(step.added, at=step.added.at + 4))
            item = (*made.item[:place], moved, *made.item[place + 1 :])
            try:
                found = run_program(replace(made, item=item), plan, network, images)
            except Mistake:
                continue
            assert not np.array_equal(found, right)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_strips_that_add_what_another_kernel_gave(precision: str) -> None:
    network = ready(residual(6, 61, 13))
    with little(1024 * (6 if precision == "fp16" else 12)):
        kernels = cut(network.stages, ARITHMETICS[precision], 90)
        assert any(
            isinstance(plan, Stack) and plan.strip and plan.phases[-1].operation.added
            for plan in kernels
        )
        assert problem(network, images_of(network), precision, kernels) is None


ODD_LAYERS: list[tuple[tuple[int, int, int], tuple[Layer, ...]]] = [
    ((6, 37, 9), (Convolution(12, 3, padding=1, groups=6), ReLU(), Convolution(4, 1))),
    ((5, 37, 8), (Convolution(5, 3, stride=2, padding=(0, 1, 1, 0), groups=5), Tanh())),
    ((4, 37, 7), (Convolution(6, (3, 2), padding=2, groups=2), MaxPool(3, stride=2, padding=1))),
    ((3, 37, 9), (Convolution(5, 3, padding=(2, 1, 0, 3), dilation=(2, 3)), ReLU())),
    ((2, 77, 6), (Convolution(3, 3, padding=(1, 0, 0, 1)), AveragePool(3, stride=2, padding=1))),
    ((3, 96, 7), (AveragePool(3, stride=2, padding=1, ceil=True, count_padding=True), Tanh())),
    ((3, 35, 8), (Convolution(4, 1), MaxPool((3, 2), stride=2, padding=(1, 0, 2, 1), ceil=True))),
]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape, layers", ODD_LAYERS)
def test_layers_out_of_the_ordinary(shape, layers: tuple[Layer, ...], precision: str) -> None:
    """Whole, and in strips."""
    network = ready(Network("odd", Pixels(shape), layers))
    assert problem(network, images_of(network), precision) is None
    with little(1024 * (2 if precision == "fp16" else 4)):
        kernels = cut(network.stages, ARITHMETICS[precision], 90)
        assert any(isinstance(plan, Stack) and plan.strip for plan in kernels)
        assert problem(network, images_of(network), precision, kernels) is None


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("filters", [1, 9])
def test_pixels_scaled_channel_by_channel(filters: int, precision: str) -> None:
    """As bytes: four at a time where three channels lie tight, or one by one, or joined."""
    pixels = Pixels((3, 8, 8), scale=(0.5, 1 / 255, 0.25), shift=(-1.0, 0.0, 3.0))
    layers = (Convolution(filters, 3, padding=1), Convolution(3, 1), Concat())
    network = ready(Network("scaled", pixels, layers, sources=((0,), (1,), (2, 0))))
    images = np.random.default_rng(3).integers(0, 256, (2, 3, 8, 8), np.uint8)
    assert problem(network, images, precision) is None
    alone = ready(Network("scaled", pixels, layers[:1]))
    assert problem(alone, images, precision) is None


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "layers, sources",
    [
        # A large layer's output has two readers; its input is the pixels, that others read, too.
        ((FullyConnected(120), ReLU(), FullyConnected(120), Add(), FullyConnected(3)),
         ((0,), (1,), (2,), (2, 3), (4,))),
        ((Convolution(8, 1), Flatten(), FullyConnected(90), Softmax(), Concat(),
          FullyConnected(5), Softmax()), ((0,), (1,), (2,), (3,), (4, 3), (5,), (6,))),
        # Flattened pictures beside rows; a softmax whose scores somebody else reads.
        ((Convolution(2, 3), Flatten(), FullyConnected(72), Concat(), Softmax(), Add()),
         ((0,), (1,), (2,), (2, 3), (4,), (4, 5))),
        ((Flatten(), Concat(), FullyConnected(4)), ((0,), (1, 1), (2,))),
    ],
)  # fmt: skip
def test_rows_that_branch(layers, sources, precision: str) -> None:
    network = ready(Network("rows", Pixels((3, 8, 8)), layers, sources=sources))
    assert problem(network, images_of(network), precision) is None


def test_layers_are_taken_together_as_far_as_nobody_else_reads_them() -> None:
    layers = (
        Convolution(4, 1), ReLU(), Convolution(4, 1), MaxPool(2), Convolution(4, 2, stride=2),
        ReLU(), Add(), ReLU(), Concat(), Convolution(5, 1), Add(),
    )  # fmt: skip
    sources = (
        (0,), (1,), (2,), (3,), (2,), (5,), (4, 6), (7,), (8, 4), (9,), (10, 10),
    )  # fmt: skip
    network = Network("net", Pixels((1, 8, 8)), layers, sources=sources)
    found = [(each.kind, each.names, each.takes) for each in operations(network.stages)]
    assert found == [
        ("sum", ("conv1", "relu1"), (-1,)),
        ("sum", ("conv2", "pool"), (0,)),
        ("sum", ("conv3", "relu2", "add1", "relu3"), (0, 1)),
        ("join", ("concat",), (2, 1)),
        ("sum", ("conv4",), (3,)),
        ("join", ("add2",), (4, 4)),
    ]


def test_joins_of_what_other_kernels_gave_take_no_shared_memory() -> None:
    layers = (Convolution(8, 1), Convolution(8, 1), Convolution(8, 1), Add(), Concat())
    sources = ((0,), (0,), (0,), (1, 2, 3), (4, 1))
    network = ready(Network("wide", Pixels((2, 40, 40)), layers, sources=sources))
    with little(4096):
        kernels = cut(network.stages, ARITHMETICS["fp16"], 90)
        assert problem(network, images_of(network), "fp16", kernels) is None
    joins = [plan for plan in kernels if isinstance(plan, Stack) and plan.layout]
    assert [plan.names for plan in joins] == [("add",), ("concat",)]
    for plan in joins:
        assert plan.shared_bytes == 0
        (step, _) = program(plan, None, "words").item
        assert isinstance(step, Join)


@pytest.mark.parametrize("pool", [AveragePool(9), MaxPool(5, stride=3, padding=2)])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_pooling_that_fits_nowhere_reads_device_memory(pool: Layer, precision: str) -> None:
    layers = (Convolution(37, 1), ReLU(), pool, ReLU(), FullyConnected(3))
    network = ready(Network("pooled", Pixels((2, 9, 9)), layers))
    with little(2500):
        kernels = cut(network.stages, ARITHMETICS[precision], 90)
        assert problem(network, images_of(network), precision, kernels) is None
    assert any(plan.shared_bytes == 0 for plan in kernels)
