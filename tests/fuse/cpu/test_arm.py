"""The code for NEON, run: by qemu, linked with a driver by a cross compiler."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuse.cpu import test_nan
from tests.fuse.cpu.branches import BRANCHES
from tests.fuse.cpu.foreign import Arm, needs_arm
from tests.fuse.cpu.machines import MACHINES
from tilewright.fuse.cpu import build, tickets
from tilewright.fuse.cpu.few import phases
from tilewright.fuse.cpu.parameters import layout
from tilewright.fuse.cpu.schedule import by_channels, by_images
from tilewright.model.layers import (
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

NEON = MACHINES["neon"]
# All kinds of layers, fused and on their own; sizes that divide nothing.
NETWORKS = {
    "everything": ((3, 13, 11), (
        Convolution(9, 3, padding=1), ReLU(), MaxPool(2), Convolution(6, (5, 3), padding=(2, 0)),
        Tanh(), AveragePool((2, 1)), MaxPool(2, stride=1), FullyConnected(7), Tanh(),
        FullyConnected(5), Softmax(),
    )),
    "a large product": ((5, 9, 13), (ReLU(), AveragePool(2, stride=1), FullyConnected(70), ReLU(),
                                     FullyConnected(10))),
    "a picture": ((2, 9, 9), (Convolution(5, 4, stride=2, padding=3, bias=False), MaxPool(3))),
    "worked on together": ((1, 21, 21), (Convolution(12, 7), Flatten(), Tanh())),
}  # fmt: skip


GRAPHS = {
    **{name: Network(name, Pixels(shape), layers) for name, (shape, layers) in NETWORKS.items()},
    **BRANCHES,
}


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    return Arm(tmp_path_factory.mktemp("arm"))


@needs_arm
@pytest.mark.parametrize("schedule", [by_images, by_channels])
@pytest.mark.parametrize("name", GRAPHS)
def test_networks_on_arm(name, schedule, arm, request):
    if name != "everything":  # LLVM makes the rest in a quarter of the time
        request.getfixturevalue("not_optimised")
    generator = np.random.default_rng(3)
    network = GRAPHS[name]
    network = network.with_parameters(random_parameters(network, generator))
    plan = schedule(network, NEON.target)
    program = arm.program(network, plan)
    # Where several images go together, an image has no function that does it all.
    ways = {False: not layout(plan).slot, True: plan.one_by_one}
    pixels = generator.integers(0, 256, (23, *network.input.shape), np.uint8)
    for images in (pixels, generator.normal(size=pixels.shape).astype(np.float32)):
        truth = reference.chain(network.stages, network.parameters, images)[-1]
        for by_phases in (way for way, possible in ways.items() if possible):
            _, problem = compare(program.run(images, by_phases), truth)
            assert problem is None, problem


def test_something_is_worked_on_together():
    shape, layers = NETWORKS["worked on together"]
    plan = by_channels(Network("layer", Pixels(shape), layers), NEON.target)
    assert max(phase.units for phase in phases(plan)) > 1


@needs_arm
@pytest.mark.usefixtures("not_optimised")
@pytest.mark.parametrize("schedule", [by_images, by_channels])
@pytest.mark.parametrize("name", ["max", "average", "conv, relu, max", "softmax"])
def test_nan_and_infinity_on_arm(name, schedule, arm):
    network, images, right = test_nan.case(name)
    actual = arm.program(network, schedule(network, NEON.target)).run(images)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(right))
    np.testing.assert_allclose(actual, right, rtol=1e-4, atol=1e-5)


def test_tickets_are_compiled_for_arm(monkeypatch):
    monkeypatch.setattr(tickets, "is_arm", lambda: True)
    assert build.object_code(tickets._code(), NEON)[:4] == b"\x7fELF"


@needs_arm
@pytest.mark.usefixtures("not_optimised")
def test_threads_take_tickets_on_arm(arm):
    """The same bits, whoever computes what."""
    shape, layers = NETWORKS["worked on together"]
    network = Network("shared", Pixels(shape), layers)
    generator = np.random.default_rng(4)
    network = network.with_parameters(random_parameters(network, generator))
    program = arm.program(network, by_channels(network, NEON.target))
    images = generator.integers(0, 256, (20, *shape), np.uint8)
    alone = program.run(images)
    for helpers in (1, 3):
        np.testing.assert_array_equal(program.run(images, True, helpers), alone)
