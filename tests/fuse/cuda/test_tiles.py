"""Layers in tiles for few images: what they compute, and mistakes planted in their constants."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest

from tests.fuse.cuda.interpreter import interpret
from tests.fuse.cuda.memory import Mistake
from tests.fuse.cuda.tiles_interpreter import run_tiles
from tilewright.fuse.cuda.alternatives import alternatives
from tilewright.fuse.cuda.arithmetic import ARITHMETICS, Words
from tilewright.fuse.cuda.choice import Spread
from tilewright.fuse.cuda.cut import build, choose, for_few
from tilewright.fuse.cuda.emit_tiles import tiles_program_text, tiles_text
from tilewright.fuse.cuda.generations import GENERATIONS, HOPPER
from tilewright.fuse.cuda.steps_tiles import TilesProgram, tiles_program
from tilewright.fuse.cuda.tiles import Tiles, can_spread, fits
from tilewright.fuse.cuda.to_do import to_do
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
# Pooling of both kinds, strides, padding on some sides only, taps that are apart, a sum that
# something is added to, a fully connected layer on a picture, and one with softmax.
LAYERS = (
    Convolution(8, 3, padding=1), ReLU(),
    Convolution(8, 3, padding=(2, 3), dilation=(2, 3)), Add(), Tanh(),
    Convolution(10, 3), ReLU(), MaxPool(2),
    Convolution(7, (3, 2), stride=(1, 2), padding=(1, 0, 1, 3)), AveragePool(2), Flatten(),
    FullyConnected(21), ReLU(), FullyConnected(5), Softmax(),
)  # fmt: skip
SOURCES = ((0,), (1,), (2,), (2, 3), *((number,) for number in range(4, 15)))


class Kernel(NamedTuple):
    plan: Tiles
    made: TilesProgram
    parameters: Words
    given: np.ndarray
    added: np.ndarray | None
    found: np.ndarray

    def run(self, made: TilesProgram, parts: int = 1) -> np.ndarray:
        blocks = self.plan.row_blocks(IMAGES), self.plan.column_blocks, parts
        return run_tiles(made, self.parameters, self.given, blocks, self.added)

    def problem(self, made: TilesProgram) -> str | None:
        """What is wrong with other constants."""
        try:
            found = self.run(made)
        except (Mistake, IndexError, ValueError) as mistake:
            return str(mistake) or type(mistake).__name__
        return None if np.array_equal(found, self.found) else "other results"


def kernels(precision: str) -> list[Kernel]:
    """All of a network's, each with what the one before gave."""
    arithmetic, generator = ARITHMETICS[precision], np.random.default_rng(0)
    network = Network("net", Pixels((3, 9, 10)), LAYERS, sources=SOURCES)
    network = network.with_parameters(random_parameters(network, generator))
    images = generator.integers(0, 256, (IMAGES, 3, 9, 10), np.uint8)
    todo = to_do(network.stages, for_few(HOPPER))
    made: dict[int, np.ndarray] = {-1: images}
    found = []
    while todo:
        part = todo[:2] if can_spread(todo[:2]) else todo[:1]
        todo = todo[len(part) :]
        plan = Tiles(
            arithmetic, part[0], part[1] if len(part) > 1 else None, 2, 1, 1, 1, 2, 8, 3, 9
        )
        assert fits(plan, HOPPER), part[0].names
        source = "uint8" if part[0].takes[0] < 0 else "words"
        program = tiles_program(plan, network.input, source)
        parameters = plan.parameters(network.parameters)
        given, *others = (made[each] for each in part[0].takes)
        blocks = plan.row_blocks(IMAGES), plan.column_blocks, 1
        made[plan.last] = run_tiles(program, parameters, given, blocks, *others)
        added = others[0] if others else None
        found.append(Kernel(plan, program, parameters, given, added, made[plan.last]))
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    output = found[-1].found.view(np.float32).reshape(truth.value.shape)
    assert compare(output, truth)[1] is None
    return found


@pytest.fixture(scope="module", params=list(ARITHMETICS))
def each(request: pytest.FixtureRequest) -> list[Kernel]:
    return kernels(request.param)


def test_the_constants_are_what_is_printed(each: list[Kernel]) -> None:
    for kernel in each:
        text = tiles_text(kernel.plan, "tiles", Pixels((3, 9, 10)), kernel.made.source)
        assert tiles_program_text(kernel.made, "tiles") == text


def test_blocks_that_share_sums_give_the_same(each: list[Kernel]) -> None:
    for kernel in each:
        if kernel.plan.rounds > 2 and kernel.made.arithmetic.name != "fp16":
            found = kernel.run(kernel.made, parts=3).view(np.float32)
            np.testing.assert_allclose(found, kernel.found.view(np.float32), atol=1e-2)


# Constants that a kernel reads or writes by: a wrong one gives other results, or is caught.
OFFSETS = {
    "bias": 8, "weights": 8, "round_weights": 8, "height": -1, "width": -1, "taps_x": 1,
    "apart_y": 1, "apart_x": 1, "stride_y": 1, "stride_x": 1, "top": 1, "left": 1, "result_x": -1,
    "out_pixel": 1, "result_words": -4,
}  # fmt: skip


@pytest.mark.parametrize("layer", ["conv1", "conv2"])
def test_every_wrong_constant_is_seen(layer: str) -> None:
    (kernel,) = (each for each in kernels("fp32") if each.plan.names[0] == layer)
    for name, more in OFFSETS.items():
        wrong = replace(kernel.made, **{name: getattr(kernel.made, name) + more})
        assert kernel.problem(wrong), name


@pytest.mark.parametrize("precision", ["fp32", "tf32x3"])
def test_what_fits_nowhere_else_is_in_tiles(
    precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A picture of which not even a strip fits: of many images it goes as of few."""
    little = replace(HOPPER, shared_bytes=20 * 1024)
    monkeypatch.setitem(GENERATIONS, 90, little)
    layers = (
        Convolution(96, 1), ReLU(), Convolution(64, 5, padding=2), Tanh(), MaxPool(2),
        Convolution(8, 1), Flatten(), FullyConnected(5), Softmax(),
    )  # fmt: skip
    bare = Network("wide", Pixels((3, 12, 12)), layers)
    network = bare.with_parameters(random_parameters(bare, np.random.default_rng(0)))
    arithmetic = ARITHMETICS[precision]
    choice = choose(network.stages, arithmetic, 90)
    assert any(isinstance(each, Spread) for each in choice.kernels)
    kernels = build(network.stages, arithmetic, 90, choice)
    images = np.random.default_rng(1).integers(0, 256, (IMAGES, 3, 12, 12), np.uint8)
    truth = reference.chain(network.stages, network.parameters, images, arithmetic.precision)[-1]
    assert compare(interpret(kernels, network, images), truth)[1] is None
    assert next(alternatives(network.stages, arithmetic, 90)).kernels == choice.kernels
