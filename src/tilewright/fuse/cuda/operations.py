"""A network's layers as the few operations a whole-network kernel is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.model.layers import AveragePool, Convolution, Pooling, Shape
from tilewright.model.network import Stage

Kind = Literal["sum", "each", "softmax"]
Pool = Literal["", "max", "average"]


@dataclass(frozen=True)
class Window:
    """What part of a picture an output sees."""

    taps: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)


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

    @property
    def weights(self) -> int:
        return self.source[0] * self.summed[0] * math.prod(self.window.taps)


def operations(stages: Sequence[Stage]) -> list[Operation]:
    """All layers but the input, in order. Flattening is a matter of how weights are ordered."""
    shape = picture_shape(stages[0].input_shape)
    rest = [stage for stage in stages if stage.kind not in ("input", "flatten")]
    found: list[Operation] = []
    while rest:
        operation = _next(rest, shape)
        found.append(operation)
        shape = operation.result
        del rest[: len(operation.stages)]
        if operation.kind == "softmax" and rest:
            # Probabilities are floats; what comes next reads operands.
            found.append(Operation("each", (), shape, shape, shape))
    return found


def only_input(stages: Sequence[Stage]) -> Operation:
    """Nothing but the pixels' values, for a kernel that begins with something else."""
    shape = picture_shape(stages[0].input_shape)
    return Operation("each", (), shape, shape, shape)


def _next(rest: list[Stage], source: Shape) -> Operation:
    """`source` is the picture at hand: a flattened one is still a picture."""
    first = rest[0]
    if first.kind == "softmax":
        row = (1, 1, math.prod(source))
        return Operation("softmax", (first,), row, row, row)
    if first.kind in ("conv", "fc"):
        return _sum(rest, source)
    layer = first.layer
    if isinstance(layer, Pooling):
        after = _activations(rest[1:])
        pool: Pool = "average" if isinstance(layer, AveragePool) else "max"
        window, result = Window(layer.size, layer.stride), picture_shape(first.output_shape)
        stages = tuple(rest[: 1 + len(after)])
        return Operation("each", stages, source, result, result, window, pool, after=after)
    after = _activations(rest)
    return Operation("each", tuple(rest[: len(after)]), source, source, source, after=after)


def _sum(rest: list[Stage], source: Shape) -> Operation:
    summed = result = picture_shape(rest[0].output_shape)
    layer = rest[0].layer
    if isinstance(layer, Convolution):
        window = Window(layer.kernel, layer.stride, layer.padding)
    else:
        window = Window((source[1], source[2]))
    before = _activations(rest[1:])
    taken = 1 + len(before)
    pool: Pool = ""
    after: tuple[str, ...] = ()
    if taken < len(rest) and _is_two_by_two(rest[taken]):
        pool = "average" if isinstance(rest[taken].layer, AveragePool) else "max"
        result = picture_shape(rest[taken].output_shape)
        after = _activations(rest[taken + 1 :])
        taken += 1 + len(after)
    stages = tuple(rest[:taken])
    return Operation("sum", stages, source, summed, result, window, pool, before, after)


def _activations(rest: Sequence[Stage]) -> tuple[str, ...]:
    kinds: list[str] = []
    for stage in rest:
        if stage.kind not in ("relu", "tanh"):
            break
        kinds.append(stage.kind)
    return tuple(kinds)


def _is_two_by_two(stage: Stage) -> bool:
    layer = stage.layer
    return isinstance(layer, Pooling) and layer.size == layer.stride == (2, 2)


def picture_shape(shape: Shape) -> Shape:
    """A row of features is a picture of one pixel."""
    return shape if len(shape) == 3 else (shape[0], 1, 1)
