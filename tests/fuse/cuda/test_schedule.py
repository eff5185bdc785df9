"""Plans of whole-network kernels, run in NumPy, against the float64 reference and its bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.examples import examples
from tests.fuse.cuda.interpreter import interpret
from tests.fuse.cuda.memory import Mistake
from tests.strategies import networks as drawn_networks
from tilewright.fuse.cuda import arrange
from tilewright.fuse.cuda import cut as module
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.cut import (
    MOST_TOGETHER,
    Kernel,
    build,
    choose,
    cut,
    for_few,
    with_few,
)
from tilewright.fuse.cuda.dense import Dense
from tilewright.fuse.cuda.few import choose_few
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.panels import Panels
from tilewright.fuse.cuda.stack import Stack
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model import zoo
from tilewright.model.layers import (
    AveragePool,
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
from tilewright.model.network import Network, Sources
from tilewright.runtime.dialect import DoesNotFit
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import Trial, _network_trials, random_parameters, trials

PRECISIONS = list(ARITHMETICS)


def problem(
    network: Network, images: np.ndarray, precision: str, kernels: list[Kernel] | None = None
) -> str | None:
    """What is wrong with a network's plan, run in NumPy."""
    arithmetic = ARITHMETICS[precision]
    plans = cut(network.stages, arithmetic, 90) if kernels is None else kernels
    try:
        output = interpret(plans, network, images)
    except Mistake as mistake:
        return str(mistake)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    return compare(output, truth)[1]


@cache
def kernels_of(
    pixels: Pixels, layers: tuple[Layer, ...], sources: Sources, precision: str
) -> list[Kernel]:
    """How layers are cut, whatever their weights."""
    network = Network("plan", pixels, layers, sources=sources)
    return cut(network.stages, ARITHMETICS[precision], 90)


def tried_of(precision: str) -> Iterator[Trial]:
    """The verifier's trials of a rung that computes networks as one piece."""
    claimed = ARITHMETICS[precision].precision
    return trials(None, claimed, lambda network: True, 8, np.random.default_rng(0))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_the_verifier_tries(precision: str, one_in: int) -> None:
    """Single layers and short sequences of odd sizes, with every kind of inputs.

    What a kernel does depends on its network alone, which comes with some eight kinds of inputs:
    every sixth of them is run, others in another precision; of fewer, those of other networks.
    """
    tried, step = 0, 6 if one_in == 1 else 9 * one_in
    first = PRECISIONS.index(precision) * step // len(PRECISIONS)
    for number, trial in enumerate(tried_of(precision)):
        network = trial.network
        if trial.arrival or (number + first) % step:
            continue  # of what is not finite: test_not_finite
        tried += 1
        layers = [stage.layer.summary or stage.kind for stage in network.stages[1:]]
        kernels = kernels_of(network.input, network.layers, network.sources, precision)
        # Two images: the second finds what the first left in shared memory, as the others would.
        wrong = problem(network, trial.images[:2], precision, kernels)
        assert wrong is None, f"{layers} on {network.input.shape}, {trial.inputs}: {wrong}"
    assert tried > 210 // step


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_the_verifier_tries_by_kernels_for_few_images(precision: str) -> None:
    tried, arithmetic = 0, ARITHMETICS[precision]
    for trial in tried_of(precision):
        network = trial.network
        if trial.arrival:
            continue
        many = choose(network.stages, arithmetic, 90)
        choice = with_few(many, network.stages, arithmetic, 90)
        for few in choice.few[:2]:
            if not few.kernels:
                continue  # those for many are as good
            tried += 1
            kernels = build(network.stages, arithmetic, 90, choice, few)
            wrong = problem(network, trial.images[:2], precision, kernels)
            assert wrong is None, f"{network.layers} on {network.input.shape}: {wrong}"
    assert tried > 500


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_picture_of_few_images_is_read_by_many_blocks(precision: str) -> None:
    """What has no sums, between layers that are spread, is done in strips: fewer of more images."""
    layers = (
        Convolution(12, 3, padding=1), ReLU(), Convolution(12, 3, padding=1, stride=2, groups=12),
        ReLU(), Convolution(70, 1), Flatten(), FullyConnected(4),
    )  # fmt: skip
    bare = Network("depth", Pixels((3, 32, 32)), layers)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(1)))
    arithmetic = ARITHMETICS[precision]
    many, gpu = choose(network.stages, arithmetic, 90), for_few(HOPPER)
    strips: list[int] = []
    for images in (1, 64):
        few = choose_few(
            to_do(network.stages, gpu), arithmetic, gpu, images,
            lambda part: module._stacks(part, arithmetic, gpu, 0),
        )  # fmt: skip
        assert few
        _, plan, *_ = kernels = build(network.stages, arithmetic, 90, many, few)
        assert isinstance(plan, Stack)
        strips.append(len(plan.strip.starts) if plan.strip else 1)
        pixels = np.random.default_rng(2).integers(0, 256, (2, 3, 32, 32), np.uint8)
        assert problem(network, pixels, precision, kernels) is None
    assert strips[0] >= 16 > strips[1]


@examples(15)
@given(drawn_networks(), st.sampled_from(PRECISIONS), st.integers(0, 2**32 - 1))
def test_networks_of_any_shape(network: Network, precision: str, seed: int) -> None:
    generator = np.random.default_rng(seed)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.integers(0, 256, (2, *network.input.shape), np.uint8)
    assert problem(ready, images, precision) is None


@cache
def whole_numbers(precision: str) -> tuple[Network, np.ndarray]:
    """cifar10 up to its scores with weights and images that leave no room for rounding.

    Several images: the second finds what the first left in shared memory.
    """
    network = zoo.network("cifar10")
    scores = network.bare("scores", len(network.layers) - 1)
    claimed = ARITHMETICS[precision].precision
    trial, *_ = _network_trials(scores, claimed, np.random.default_rng(0))
    assert trial.inputs == "whole numbers"
    return trial.network, trial.images


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_zoo(precision: str) -> None:
    network, images = whole_numbers(precision)
    assert problem(network, images, precision) is None


@pytest.mark.parametrize("precision", PRECISIONS)
def test_strips(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images that do not fit are worked on in strips, and kernels hand pictures to each other."""
    monkeypatch.setitem(GENERATIONS, 90, replace(HOPPER, shared_bytes=6 * 1024))
    monkeypatch.setattr(arrange, "MOST_IN_STRIPS", 1)
    network = Network(
        "tall", Pixels((2, 37, 9)),
        (Convolution(6, 3, padding=1), ReLU(), Convolution(9, (5, 3), stride=(2, 1), padding=2),
         Convolution(4, 2)),
    )  # fmt: skip
    kernels = cut(network.stages, ARITHMETICS[precision], 90)
    assert len(kernels) == 3
    assert any(isinstance(plan, Stack) and plan.strip for plan in kernels)
    generator = np.random.default_rng(1)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(2, *network.input.shape)).astype(np.float32)
    assert problem(ready, images, precision) is None


@pytest.mark.parametrize(
    "layers",
    [
        (Convolution(8, 3, padding=1), ReLU(), MaxPool(2), Convolution(8, 3, padding=1),
         MaxPool(2)),
        (Convolution(8, 3), MaxPool(3, stride=2), Convolution(6, 5, padding=2), Tanh()),
        (Convolution(7, 3, padding=2), AveragePool(2), ReLU(), Convolution(6, 3, padding=1),
         Convolution(5, (1, 3), stride=(2, 1))),
        # Rows of padding behind a stride are two of what comes before it.
        (Convolution(8, 3, stride=2, padding=1), Convolution(8, 3, padding=1), MaxPool(2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("precision", PRECISIONS)
def test_strips_through_several_layers(
    layers: tuple[Layer, ...], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows between layers that lie outside the picture are zero, whatever was computed there."""
    kept = 1024 * (6 if precision == "fp16" else 8)
    # Several layers in a kernel rather than what would be faster.
    monkeypatch.setitem(GENERATIONS, 90, replace(HOPPER, shared_bytes=kept, worth_it=9))
    network = Network("tall", Pixels((2, 61, 13)), layers)
    kernels = cut(network.stages, ARITHMETICS[precision], 90)
    plans = [plan for plan in kernels if isinstance(plan, Stack) and plan.strip]
    assert any(len(plan.phases) > 1 for plan in plans)
    generator = np.random.default_rng(1)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(2, *network.input.shape)).astype(np.float32)
    assert problem(ready, images, precision) is None


@examples(30)
@given(
    drawn_networks(), st.sampled_from(PRECISIONS), st.integers(0, 2**32 - 1),
    st.integers(1, 6).map(lambda each: 2048 * each),
)  # fmt: skip
def test_little_shared_memory(network: Network, precision: str, seed: int, kept: int) -> None:
    generator = np.random.default_rng(seed)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.integers(0, 256, (2, *network.input.shape), np.uint8)
    with mock.patch.dict(GENERATIONS, {90: replace(HOPPER, shared_bytes=kept)}):
        try:
            kernels = cut(ready.stages, ARITHMETICS[precision], 90)
        except DoesNotFit:
            assume(False)
        assert problem(ready, images, precision, kernels) is None


def test_weights_outside_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATIONS, 90, replace(HOPPER, shared_bytes=8 * 1024))
    network = Network("wide", Pixels((24, 6, 6)), (Convolution(40, 3, padding=1),))
    (plan,) = cut(network.stages, ARITHMETICS["fp16"], 90)
    assert isinstance(plan, Stack)
    assert not plan.phases[0].shared
    generator = np.random.default_rng(2)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(2, *network.input.shape)).astype(np.float32)
    assert problem(ready, images, "fp16") is None


def test_what_fits_nowhere_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GENERATIONS, 90, replace(HOPPER, shared_bytes=1024))
    network = Network("wide", Pixels((64, 3, 50)), (Convolution(4, 3),))
    with pytest.raises(DoesNotFit, match=r"^conv: does not fit into 1,024 bytes of shared memory$"):
        cut(network.stages, ARITHMETICS["fp16"], 90)
    with pytest.raises(DoesNotFit, match="sm_75 has no tensor cores that add in float32"):
        cut(network.stages, ARITHMETICS["fp16"], 75)


def test_a_large_fully_connected_layer_is_a_kernel_over_the_batch() -> None:
    stages = zoo.network("ece408").stages
    first, second = cut(stages, ARITHMETICS["fp16"], 80)
    assert isinstance(first, Stack)
    assert isinstance(second, Dense)
    assert first.names == ("conv1", "tanh1", "pool", "conv2")
    assert second.names == ("fc1", "tanh2", "fc2", "softmax")
    # Rows of features end on whole chunks.
    assert first.result_words == second.words >= 26 * 26 * 12
    assert second.words % second.chunk == 0


def test_large_fully_connected_layers_are_kernels_of_their_own_on_hopper() -> None:
    stages = zoo.network("ece408").stages
    first, second, third = cut(stages, ARITHMETICS["fp16"], 90)
    assert isinstance(first, Stack)
    assert isinstance(second, Panels) and isinstance(third, Panels)
    assert (second.names, third.names) == (("fc1", "tanh2"), ("fc2", "softmax"))
    assert first.result_words == second.words >= 26 * 26 * 12
    assert (first.gives, second.given) == ("panels", "panels")
    assert (second.gives, third.given) == ("panels", "panels")


def test_softmax_in_the_middle() -> None:
    network = Network(
        "odd", Pixels((2, 4, 3)),
        (Flatten(), Softmax(), FullyConnected(9), ReLU(), FullyConnected(4), Softmax()),
    )  # fmt: skip
    generator = np.random.default_rng(3)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(3, 2, 4, 3)).astype(np.float32)
    for precision in PRECISIONS:
        assert problem(ready, images, precision) is None


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(
    "shape, layers, kernels",
    [
        # A softmax with a kernel of its own reads floats in the order of the output.
        ((1, 100, 100), (Convolution(5, 1), Flatten(), Softmax()), 2),
        ((3, 13, 18), (FullyConnected(130), Softmax(), FullyConnected(10)), 2),
        # What follows a softmax reads floats, too, where both do not fit together.
        ((1, 200, 200), (Flatten(), Softmax(), FullyConnected(10)), 3),
        # What is handed to something that is no sum is not rounded to an operand.
        ((20, 60, 60), (MaxPool(2), MaxPool(2)), None),
        ((16, 72, 72), (Tanh(), AveragePool(2)), 2),
        ((1, 32, 32), (FullyConnected(1024), ReLU(), FullyConnected(10)), 2),
    ],
)
def test_what_kernels_hand_to_each_other(
    shape, layers, kernels, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrange, "MOST_IN_STRIPS", 1)
    network = Network("handed", Pixels(shape), layers)
    generator = np.random.default_rng(4)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(2, *shape)).astype(np.float32)
    plans = cut(network.stages, ARITHMETICS[precision], 90)
    assert kernels is None or len(plans) == kernels
    assert problem(ready, images, precision, plans) is None


def test_a_layer_with_too_many_outputs_is_named() -> None:
    network = Network("wide", Pixels((1, 32, 32)), (FullyConnected(20_000),))
    with pytest.raises(DoesNotFit, match=r"^fc: 20,000 outputs of a fully connected layer do not"):
        cut(network.stages, ARITHMETICS["fp16"], 80)


def test_deep_networks_are_planned_in_time_that_grows_with_their_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Operations that are alike are planned once, and a kernel takes a limited number of them."""
    most = MOST_TOGETHER // 4
    monkeypatch.setattr(module, "MOST_TOGETHER", most)
    layers = (Convolution(3, 1), ReLU()) * (3 * most)
    network = Network("deep", Pixels((3, 4, 4)), layers)
    with mock.patch.object(arrange, "_best", wraps=arrange._best) as best:
        kernels = cut(network.stages, ARITHMETICS["fp16"], 90)
    # As many lengths as there are, with and without the first, which reads pixels, and the last.
    assert best.call_count <= 4 * most
    assert max(len(plan.operations) for plan in kernels) <= most
    names = tuple(name for plan in kernels for name in plan.names)
    assert names == tuple(stage.name for stage in network.stages[1:])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_kernels_that_take_few_operations(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alike, but not in what they are called, or in what they read and give."""
    monkeypatch.setattr(module, "MOST_TOGETHER", 2)
    layers = (*(Convolution(3, 3, padding=1), ReLU()) * 5, FullyConnected(4), Softmax())
    network = Network("deep", Pixels((3, 6, 6)), layers)
    generator = np.random.default_rng(6)
    ready = network.with_parameters(random_parameters(network, generator))
    images = generator.normal(size=(2, *network.input.shape)).astype(np.float32)
    kernels = cut(ready.stages, ARITHMETICS[precision], 90)
    assert len(kernels) >= 4
    assert problem(ready, images, precision, kernels) is None


def _shifted_table(plan: Stack) -> Stack:
    tables, places = plan.tables
    wrong = tables.copy()
    wrong[3] += 1
    made = replace(plan)
    made.__dict__["tables"] = (wrong, places)
    return made


def _other_pitch(plan: Stack) -> Stack:
    first = plan.phases[0]
    wrong = replace(first, source=replace(first.source, row=first.source.row - 2))
    made = replace(plan, phases=(wrong, *plan.phases[1:]))
    made.__dict__["tables"] = plan.tables
    return made


def _no_border(plan: Stack) -> Stack:
    made = replace(plan)
    object.__setattr__(made, "dirty", lambda index: 0)
    return made


@pytest.mark.parametrize("break_it", [_shifted_table, _other_pitch, _no_border])
def test_the_interpreter_finds_mistakes(break_it) -> None:
    """A plan with a wrong address, a wrong distance or old values in its border is caught."""
    network, images = whole_numbers("fp16")
    plan, _ = arrange.arranged(ARITHMETICS["fp16"], to_do(network.stages, HOPPER), HOPPER)
    assert problem(network, images, "fp16", [plan]) is None
    assert problem(network, images, "fp16", [break_it(plan)]) is not None
