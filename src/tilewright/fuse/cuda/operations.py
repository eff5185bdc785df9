"""A network's layers as the few operations a whole-network kernel is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.model.layers import AveragePool, Convolution, Pooling, Shape
from tilewright.model.network import Stage

Kind = Literal["sum", "each", "softmax"]


@dataclass(frozen=True)
class Window:
    """What part of a picture an output sees."""

    taps: tuple[int, int] = (1, 1)
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Operation:
    """Layers that are computed together.

    - `sum`: a convolution, or a fully connected layer as a convolution whose window is the whole
      picture; then activations `before`, 2x2 pooling if `pool` says so, and activations `after`.
    - `each`: pooling over any window, or none, and activations `after`.
    - `softmax`: over all features.
    """

    kind: Kind
    stages: tuple[Stage, ...]
    source: Shape  # picture: channels, height, width
    summed: Shape  # before pooling
    result: Shape
    window: Window = Window()
    pool: Literal["", "max", "average"] = ""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages)

    @property
    def connected(self) -> bool:
        """Whether it is a fully connected layer."""
        return self.stages[0].kind == "fc"

    @property
    def weights(self) -> int:
        return math.prod(self.source) * self.summed[0] if self.connected else (
            self.source[0] * self.summed[0] * math.prod(self.window.taps)
        )


def operations(stages: Sequence[Stage]) -> list[Operation]:
    """All layers but the input, in order. Flattening is a matter of how weights are ordered."""
    rest = [stage for stage in stages if stage.kind not in ("input", "flatten")]
    found: list[Operation] = []
    while rest:
        operation = _next(rest)
        found.append(operation)
        del rest[: len(operation.stages)]
    return found


def _next(rest: list[Stage]) -> Operation:
    first = rest[0]
    source, result = _picture(first.input_shape), _picture(first.output_shape)
    summed = result
    if first.kind == "softmax":
        return Operation("softmax", (first,), source, summed, result)
    if first.kind in ("conv", "fc"):
        before = _activations(rest[1:])
        taken = 1 + len(before)
        pool: Literal["", "max", "average"] = ""
        after: tuple[str, ...] = ()
        if taken < len(rest) and _is_two_by_two(rest[taken]):
            pool = "average" if isinstance(rest[taken].layer, AveragePool) else "max"
            result = _picture(rest[taken].output_shape)
            after = _activations(rest[taken + 1 :])
            taken += 1 + len(after)
        return Operation(
            "sum", tuple(rest[:taken]), source, summed, result, _window(first), pool, before, after
        )
    layer = first.layer
    if isinstance(layer, Pooling):
        after = _activations(rest[1:])
        pool = "average" if isinstance(layer, AveragePool) else "max"
        window = Window(layer.size, layer.stride)
        return Operation(
            "each", tuple(rest[: 1 + len(after)]), source, summed, result, window, pool, after=after
        )
    after = _activations(rest)
    return Operation("each", tuple(rest[: len(after)]), source, summed, result, after=after)


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


def _window(stage: Stage) -> Window:
    layer = stage.layer
    if isinstance(layer, Convolution):
        return Window(layer.kernel, layer.stride, layer.padding)
    _, height, width = _picture(stage.input_shape)
    return Window((height, width))


def _picture(shape: Shape) -> Shape:
    """A row of features is a picture of one pixel."""
    return shape if len(shape) == 3 else (shape[0], 1, 1)
