"""Wide convolutions in patches: what they compute, and mistakes planted in their constants."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import interpret
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.fuse.cuda.arrange import arranged
from tilewright.fuse.cuda.choice import Choice, Connected, Patched, Stacked
from tilewright.fuse.cuda.cut import Kernel, build, to_do
from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.patches import Patches, all_patches, patched
from tilewright.model.layers import (
    Add,
    AveragePool,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
    Tanh,
)
from tilewright.model.network import Network
from tilewright.truth import reference
from tilewright.truth.attempt import compare
from tilewright.truth.trials import random_parameters

IMAGES = 3
# Channels that leave a chunk half empty, filters that leave columns empty, both poolings, strides,
# zeros on some sides only, a sum that something is added to and that others read, and a picture
# whose windows leave a row over; a fully connected layer at the end, which reads panels.
LAYERS = (
    Convolution(32, 1), Tanh(),
    Convolution(40, 3, padding=1), ReLU(), MaxPool(2),
    Convolution(40, 3, padding=1), Add(), Tanh(),
    Convolution(72, (3, 2), stride=(1, 2), padding=(1, 0, 1, 3)), AveragePool(2),
    Convolution(32, 1, stride=2), ReLU(),
    Convolution(512, 5, stride=2, padding=2), Flatten(),
    FullyConnected(24), ReLU(), FullyConnected(5), Softmax(),
)  # fmt: skip
SOURCES = (*((number,) for number in range(6)), (5, 6), *((number,) for number in range(7, 18)))


def network() -> Network:
    made = Network("net", Pixels((3, 19, 26)), LAYERS, sources=SOURCES)
    return made.with_parameters(random_parameters(made, np.random.default_rng(0)))


def kernels(precision: str, number: int) -> list[Kernel]:
    """A network's, with patches wherever they can be: of all plans one or another."""
    arithmetic, stages = ARITHMETICS[precision], network().stages
    chosen: list[Stacked | Patched | Connected] = []
    for operation in to_do(stages, HOPPER):
        plans = list(all_patches(arithmetic, operation, HOPPER))
        if plans:
            chosen.append(patched(plans[(number * 37 + 11 * operation.index) % len(plans)]))
        elif operation.forms[0] == "panels" or operation.gives == "panels":
            chosen.append(Connected(1, HOPPER.most_few))
        else:
            _, arrangement = arranged(arithmetic, [operation], HOPPER, {})
            chosen.append(Stacked(1, *arrangement))
    return build(stages, arithmetic, 90, Choice(HOPPER.name, tuple(chosen)))


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("precision", ["fp16", "tf32"])
def test_a_network_of_patches(precision: str, number: int) -> None:
    made = kernels(precision, number)
    given, generator = network(), np.random.default_rng(number)
    images = generator.integers(0, 256, (IMAGES, *given.input.shape), np.uint8)
    arithmetic = ARITHMETICS[precision]
    truth = reference.chain(given.stages, given.parameters, images, arithmetic.precision)
    output = interpret(made, given, images)
    assert compare(output, truth[-1])[1] is None
    assert sum(isinstance(each, Patches) for each in made) == 5
