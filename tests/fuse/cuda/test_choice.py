"""What was chosen, as plain data, gives the same kernels as choosing."""

from __future__ import annotations

import json

import msgspec
import pytest

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.choice import Choice, Connected, Multiplied, Spread, Stacked
from tilewright.fuse.cuda.cut import build, choose, cut, few_of, sources, with_few
from tilewright.fuse.cuda.generations import generation
from tilewright.fuse.cuda.run import kernel_text
from tilewright.fuse.cuda.to_do import to_do
from tilewright.model import zoo
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.network import Network

FP16 = ARITHMETICS["fp16"]
# Strips of pictures, a large fully connected layer, and what follows it.
MANY = Network(
    "many",
    Pixels((3, 96, 96)),
    (Convolution(24, 5), ReLU(), MaxPool(2), Convolution(40, 3), ReLU(), MaxPool(2),
     FullyConnected(300), ReLU(), FullyConnected(10), Softmax()),
)  # fmt: skip


STACK = {"kind": "stack", "operations": -5, "division": 0, "warps": 4, "groups": 4, "weight": 0.1}


def texts(network: Network, kernels: list) -> list[str]:
    read = sources(kernels, "uint8")
    return [
        kernel_text(plan, "kernel", network.input, source)
        for plan, source in zip(kernels, read, strict=True)
    ]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("precision", ARITHMETICS)
@pytest.mark.parametrize("network", [zoo.network("ece408"), MANY], ids=lambda each: each.name)
def test_the_same_kernels_come_back(network: Network, precision: str, capability: int) -> None:
    arithmetic = ARITHMETICS[precision]
    choice = choose(network.stages, arithmetic, capability)
    text = json.dumps(msgspec.to_builtins(choice))
    again = Choice.of(json.loads(text))
    assert again == choice
    kernels = build(network.stages, arithmetic, capability, again)
    expected = cut(network.stages, arithmetic, capability)
    assert texts(network, kernels) == texts(network, expected)


@pytest.mark.parametrize("precision", ARITHMETICS)
def test_they_are_those_that_the_search_found(precision: str) -> None:
    network, arithmetic = zoo.network("cifar10"), ARITHMETICS[precision]
    choice, gpu = choose(network.stages, arithmetic, 90), generation(90)
    todo, found = to_do(network.stages, gpu), []
    for kernel in choice.kernels:
        part, todo = todo[: kernel.operations], todo[kernel.operations :]
        found.append(arranged(arithmetic, part, gpu)[0])
    kernels = build(network.stages, arithmetic, 90, choice)
    assert texts(network, kernels) == texts(network, found)


def test_another_arrangement_gives_another_kernel() -> None:
    network = zoo.network("cifar10")
    choice = choose(network.stages, FP16, 90)
    kernel, *rest = choice.kernels
    assert isinstance(kernel, Stacked) and (kernel.warps, kernel.groups) != (2, 4)
    other = msgspec.structs.replace(kernel, warps=2, groups=4)
    changed = msgspec.structs.replace(choice, kernels=(other, *rest))
    built, *_ = build(network.stages, FP16, 90, changed)
    assert (built.warps, built.groups) == (2, 4)


def test_what_cannot_be_built_is_refused() -> None:
    network = zoo.network("ece408")
    choice = choose(network.stages, FP16, 80)
    first, second = choice.kernels
    assert isinstance(first, Stacked) and isinstance(second, Multiplied)
    change = msgspec.structs.replace

    def refused(words: str, **fields: object) -> None:
        with pytest.raises(TilewrightError, match=words):
            build(network.stages, FP16, 80, change(choice, **fields))

    refused("options.generation: kernels for nothing, and the GPU is", generation="nothing")
    refused("options.kernels: they leave fc1 out", kernels=(first,))
    for wrong in (
        change(first, division=-1), change(first, division=10**6), change(first, warps=3),
        change(first, weight=7.0), change(first, operations=10**9),
        second,
    ):  # fmt: skip
        refused(r"options.kernels\[0\]: .* is no kernel of these layers", kernels=(wrong, second))
    for wrong in (
        change(second, warps=1), change(second, chunk=7), change(second, operations=1),
        change(first, operations=second.operations),
    ):  # fmt: skip
        refused(r"options.kernels(\[1\])?: ", kernels=(first, wrong))
    refused(r"options.kernels\[2\]", kernels=(first, second, second))
    refused(r"options.kernels\[1\]", kernels=(first, Connected(1, 128)))


def test_layers_in_panels_that_cannot_be_built_are_refused() -> None:
    network = zoo.network("ece408")
    choice = choose(network.stages, FP16, 90)
    first, second, third = choice.kernels
    assert (second, third) == (Connected(1, 128), Connected(2, 128))
    change = msgspec.structs.replace
    build(network.stages, FP16, 90, change(choice, kernels=(first, second, change(third, few=0))))
    for number, kernels in (
        (0, (second, second, third)),  # a convolution
        (1, (first, third)),  # two layers in one
        (1, (first, Multiplied(3, 10, 2, 5, 32, 4))),  # of another generation
        (3, (first, second, change(third, operations=1), second)),
    ):
        with pytest.raises(TilewrightError, match=rf"options.kernels(\[{number}\])?: "):
            build(network.stages, FP16, 90, change(choice, kernels=kernels))


@pytest.mark.parametrize(
    "value", ["x", [{"kind": "other"}], [{"kind": "stack", "warps": 2}], 3, [STACK]]
)
def test_what_is_no_choice_names_the_field(value: object) -> None:
    options = {"generation": "Hopper", "kernels": value}
    with pytest.raises(TilewrightError, match=r"^options: .*\$.kernels"):
        Choice.of(options)


def test_kernels_for_few_images_come_back_and_are_used_up_to_their_number() -> None:
    network, arithmetic = zoo.network("ece408"), ARITHMETICS["fp32"]
    choice = with_few(choose(network.stages, arithmetic, 90), network.stages, arithmetic, 90)
    again = Choice.of(json.loads(json.dumps(msgspec.to_builtins(choice))))
    assert again == choice
    assert [few.images for few in choice.few] == [1, 4, 16, 64, 128]
    found = {images: few_of(again, images) for images in (1, 2, 16, 17, 64, 65, 129)}
    assert [few and few.images for few in found.values()] == [1, 4, 16, 64, 64, 128, None]
    limited = msgspec.structs.replace(again, few_up_to=3)
    assert [few_of(limited, images) for images in (3, 4)] == [choice.few[1], None]
    forced = msgspec.structs.replace(again, few_up_to=10**6)
    assert few_of(forced, 1000) is forced.few[-1]
    for few in choice.few:
        built = build(network.stages, arithmetic, 90, again, few)
        assert [plan.names for plan in built] == [
            ("conv1", "tanh1", "pool"), ("conv2",), ("fc1", "tanh2"), ("fc2", "softmax"),
        ]  # fmt: skip


@pytest.mark.parametrize("precision", ARITHMETICS)
def test_layers_may_all_be_in_strips(precision: str) -> None:
    """Those of 64 images are; one image has kernels of its own all the same."""
    layers = (Convolution(32, 3, padding=1), ReLU()) * 3
    network, arithmetic = Network("strips", Pixels((3, 64, 64)), layers), ARITHMETICS[precision]
    choice = with_few(choose(network.stages, arithmetic, 90), network.stages, arithmetic, 90)
    assert few_of(choice, 1) is not None
    kernels = [each for few in choice.few for each in few.kernels]
    assert any(isinstance(each, Spread) for each in kernels)
    last = [few.kernels for few in choice.few if few.kernels][-1]
    assert any(isinstance(each, Stacked) for each in last)


def test_of_some_images_those_for_many_are_best() -> None:
    """A perceptron without tensor cores: one row of sums is quickly done, sixteen are not."""
    layers = (Flatten(), FullyConnected(128), ReLU(), FullyConnected(10), Softmax())
    network, arithmetic = Network("rows", Pixels((3, 32, 32)), layers), ARITHMETICS["fp32"]
    choice = with_few(choose(network.stages, arithmetic, 90), network.stages, arithmetic, 90)
    assert choice.few[0].kernels == () and few_of(choice, 1) is None
    many = build(network.stages, arithmetic, 90, choice)
    assert build(network.stages, arithmetic, 90, choice, choice.few[0]) == many
    few = few_of(choice, 16)
    assert few is not None and build(network.stages, arithmetic, 90, choice, few) != many


@pytest.mark.parametrize(
    "wrong",
    [{"deep": 3}, {"stages": 1}, {"tiles": 3}, {"columns": 60}, {"chunk": 12}, {"operations": 2},
     {"down": 64}],
    ids=str,
)  # fmt: skip
def test_tiles_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    network, arithmetic = zoo.network("ece408"), ARITHMETICS["fp32"]
    choice = with_few(choose(network.stages, arithmetic, 90), network.stages, arithmetic, 90)
    few = choice.few[0]
    first, *rest = few.kernels
    assert isinstance(first, Spread)
    other = msgspec.structs.replace(first, **wrong)
    bad = msgspec.structs.replace(few, kernels=(other, *rest))
    with pytest.raises(TilewrightError, match=r"options.kernels\[0\]: Spread"):
        build(network.stages, arithmetic, 90, choice, bad)
