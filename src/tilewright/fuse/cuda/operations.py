"""A network's layers as the few operations a whole-network kernel is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    AveragePool,
    Convolution,
    FullyConnected,
    MaxPool,
    Pooling,
    Shape,
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
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    @property
    def connected(self) -> bool:
        """Whether it is a fully connected layer."""
        return bool(self.stages) and self.stages[0].kind == "fc"

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
    rest = [stage for stage in stages if stage.kind not in ("input", "flatten")]
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


def _next(rest: Sequence[Stage], at: int, source: Shape) -> Operation:
    """From layer `at` on. `source` is the picture at hand: a flattened one is still a picture."""
    first = rest[at]
    match first.kind:
        case "softmax":
            row = (1, 1, math.prod(source))
            return Operation("softmax", (first,), row, row, row)
        case "conv" | "fc":
            return _sum(rest, at, source)
        case "pool":
            after = _activations(rest, at + 1)
            window, result = _pooling_window(first), picture_shape(first.output_shape)
            stages = tuple(rest[at : at + 1 + len(after)])
            return Operation(
                "each", stages, source, result, result, window, _pool(first), after=after
            )
        case "relu" | "tanh":
            after = _activations(rest, at)
            stages = tuple(rest[at : at + len(after)])
            return Operation("each", stages, source, source, source, after=after)
    raise _unknown(first)


def _sum(rest: Sequence[Stage], at: int, source: Shape) -> Operation:
    first = rest[at]
    summed = result = picture_shape(first.output_shape)
    if isinstance(first.layer, Convolution):
        window = Window(first.layer.kernel, first.layer.stride, first.layer.padding)
    elif isinstance(first.layer, FullyConnected):
        window = Window((source[1], source[2]))
    else:
        raise _unknown(first)
    before = _activations(rest, at + 1)
    end = at + 1 + len(before)
    pool: Pool = ""
    after: tuple[str, ...] = ()
    if end < len(rest) and rest[end].kind == "pool" and _pooling_window(rest[end]) == TWO_BY_TWO:
        pool = _pool(rest[end])
        result = picture_shape(rest[end].output_shape)
        after = _activations(rest, end + 1)
        end += 1 + len(after)
    return Operation(
        "sum", tuple(rest[at:end]), source, summed, result, window, pool, before, after
    )


def _activations(rest: Sequence[Stage], at: int) -> tuple[str, ...]:
    """The activations that follow each other from layer `at` on."""
    kinds: list[str] = []
    while at < len(rest) and rest[at].kind in ("relu", "tanh"):
        kinds.append(rest[at].kind)
        at += 1
    return tuple(kinds)


def _pool(stage: Stage) -> Pool:
    if isinstance(stage.layer, AveragePool):
        return "average"
    if isinstance(stage.layer, MaxPool):
        return "max"
    raise _unknown(stage)


def _pooling_window(stage: Stage) -> Window:
    if not isinstance(stage.layer, Pooling):
        raise _unknown(stage)
    return Window(stage.layer.size, stage.layer.stride)


def _unknown(stage: Stage) -> TilewrightError:
    layer = type(stage.layer).__name__
    return TilewrightError(
        f"{stage.name}: whole-network kernels know no layer of kind {stage.kind!r} ({layer})"
    )


def picture_shape(shape: Shape) -> Shape:
    """A row of features is a picture of one pixel."""
    return shape if len(shape) == 3 else (shape[0], 1, 1)
