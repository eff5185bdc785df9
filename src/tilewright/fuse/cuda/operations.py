"""A network's layers as the few operations a whole-network kernel is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tilewright.model.layers import (
    AveragePool,
    Convolution,
    Elementwise,
    FullyConnected,
    MaxPool,
    Pixels,
    Pooling,
    Shape,
    Softmax,
    Table,
)
from tilewright.model.network import Stage

Kind = Literal["sum", "each", "softmax"]
Pool = Literal["", "max", "average"]


@dataclass(frozen=True)
class Window:
    """What part of a picture an output sees."""

    taps: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)


TWO_BY_TWO = Window((2, 2), (2, 2))


@dataclass(frozen=True)
class Geometry:
    """All of a sum that its plan depends on: what is found for one is good for all like it."""

    source: Shape
    summed: Shape
    window: Window
    pool: Pool


@dataclass(frozen=True, eq=False)  # looked up by what it is: thousands of times in a deep network
class Operation:
    """Layers that are computed together.

    - `sum`: a convolution, or a fully connected layer as a convolution whose window is the whole
      picture; then activations `before`, 2x2 pooling if `pool` says so, and activations `after`.
    - `each`: pooling over any window, or none, and activations `after`.
    - `softmax`: over all features, as a row of pixels, in the order channel, y, x.
    """

    kind: Kind
    stages: tuple[Stage, ...]
    source: Shape  # picture: channels, height, width
    summed: Shape  # before pooling
    result: Shape
    window: Window = Window()
    pool: Pool = ""
    before: tuple[Elementwise, ...] = ()
    after: tuple[Elementwise, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    @property
    def connected(self) -> bool:
        """Whether it is a fully connected layer."""
        return bool(self.stages) and isinstance(self.stages[0].layer, FullyConnected)

    @cached_property
    def geometry(self) -> Geometry:
        return Geometry(self.source, self.summed, self.window, self.pool)

    @cached_property
    def alike(self) -> tuple[object, ...]:
        """All but its layers' names: operations with the same are planned the same."""
        return self.kind, self.geometry, self.result, self.before, self.after, self.connected

    @property
    def weights(self) -> int:
        return self.source[0] * self.summed[0] * math.prod(self.window.taps)


def operations(stages: Sequence[Stage]) -> list[Operation]:
    """All layers but the input, in order. Flattening is a matter of how weights are ordered."""
    shape = picture_shape(stages[0].input_shape)
    rest = [
        stage for stage in stages if stage.layer.computes and not isinstance(stage.layer, Pixels)
    ]
    found: list[Operation] = []
    at = 0
    while at < len(rest):
        operation = _next(rest, at, shape)
        found.append(operation)
        shape = operation.result
        at += len(operation.stages)
        if operation.kind == "softmax" and at < len(rest):
            # Probabilities are floats; what comes next reads operands.
            found.append(Operation("each", (), shape, shape, shape))
    return found


def only_input(stages: Sequence[Stage]) -> Operation:
    """Nothing but the pixels' values, for a kernel that begins with something else."""
    shape = picture_shape(stages[0].input_shape)
    return Operation("each", (), shape, shape, shape)


Source = Shape  # the picture at hand: a flattened one is still a picture
# The operation that begins with layer `at` of `rest`.
CUDA: Table[Callable[[Sequence[Stage], int, Source], Operation]] = Table("cuda")


def _next(rest: Sequence[Stage], at: int, source: Source) -> Operation:
    return CUDA.find(rest[at])(rest, at, source)


@CUDA.of(Softmax)
def _softmax(rest: Sequence[Stage], at: int, source: Source) -> Operation:
    row = (1, 1, math.prod(source))
    return Operation("softmax", (rest[at],), row, row, row)


@CUDA.of(MaxPool, AveragePool)
def _pooling(rest: Sequence[Stage], at: int, source: Source) -> Operation:
    pool, window = _pool(rest[at])
    result = picture_shape(rest[at].output_shape)
    after = _activations(rest, at + 1)
    stages = tuple(rest[at : at + 1 + len(after)])
    return Operation("each", stages, source, result, result, window, pool, after=after)


@CUDA.family(Elementwise)
def _elementwise(rest: Sequence[Stage], at: int, source: Source) -> Operation:
    after = _activations(rest, at)
    stages = tuple(rest[at : at + len(after)])
    return Operation("each", stages, source, source, source, after=after)


@CUDA.of(Convolution)
def _convolution(rest: Sequence[Stage], at: int, source: Source) -> Operation:
    layer = rest[at].layer
    assert isinstance(layer, Convolution)  # it was entered for these
    return _sum(rest, at, source, Window(layer.kernel, layer.stride, layer.padding[:2]))


@CUDA.of(FullyConnected)
def _connected(rest: Sequence[Stage], at: int, source: Source) -> Operation:
    return _sum(rest, at, source, Window((source[1], source[2])))


def _sum(rest: Sequence[Stage], at: int, source: Source, window: Window) -> Operation:
    summed = result = picture_shape(rest[at].output_shape)
    before = _activations(rest, at + 1)
    end = at + 1 + len(before)
    pool: Pool = ""
    after: tuple[Elementwise, ...] = ()
    if end < len(rest) and isinstance(rest[end].layer, Pooling):
        found, pooled = _pool(rest[end])
        if pooled == TWO_BY_TWO:
            pool, result = found, picture_shape(rest[end].output_shape)
            after = _activations(rest, end + 1)
            end += 1 + len(after)
    return Operation(
        "sum", tuple(rest[at:end]), source, summed, result, window, pool, before, after
    )


def _activations(rest: Sequence[Stage], at: int) -> tuple[Elementwise, ...]:
    """The activations that follow each other from layer `at` on."""
    found: list[Elementwise] = []
    while at < len(rest) and isinstance(layer := rest[at].layer, Elementwise):
        CUDA.find(rest[at])  # refuses one that has no expression
        found.append(layer)
        at += 1
    return tuple(found)


def _pool(stage: Stage) -> tuple[Pool, Window]:
    CUDA.find(stage)  # refuses other poolings than these two
    assert isinstance(stage.layer, Pooling)
    pool: Pool = "average" if isinstance(stage.layer, AveragePool) else "max"
    return pool, Window(stage.layer.size, stage.layer.stride)


def picture_shape(shape: Shape) -> Shape:
    """A row of features is a picture of one pixel."""
    return shape if len(shape) == 3 else (shape[0], 1, 1)
