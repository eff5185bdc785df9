"""Scores into probabilities."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Example, Layer, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.onnx_node import OnnxNode
from tilewright.model.layers.rounding import (
    DIVIDE_ULP,
    EXP_ULP,
    LOG_ULP,
    SMALLEST_NORMAL,
    Array,
    Truth,
)
from tilewright.model.layers.sizes import Shape, dimensions
from tilewright.precision import FLOAT32, UNIT, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Softmax(Layer):
    """Scores into probabilities over all features of an image."""

    kind = type = "softmax"
    words = "scores into probabilities"
    forms = EVERY
    fitting = (-4, 0)
    takes_huge = False  # sums would leave float32

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 1:
            raise TilewrightError(
                f"needs a row of features, not {dimensions(shape)}: put Flatten or "
                "FullyConnected before it"
            )
        return shape

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """exp(x − max) over its sum: relative errors of each step, added up.

        What is off in an exponent is a relative error of the result. With d = x − max, m = max and
        n classes the exponent is off by u·|d| as exp(d); by 2u·|d| more where powers of two are
        taken of d·log2(e); by u·(|d| + |m|) where x and m are multiplied before they are
        subtracted; by u·(|d| + |m|) and the errors of a logarithm of up to n as
        exp(x − (m + log Σ)). exp adds its own, the sum of n terms γ, the division its own. An
        uncertain score is a factor exp(error).
        """
        largest = x.max(1, keepdims=True)
        distance = x - largest
        weight = np.exp(distance)
        value = weight / weight.sum(1, keepdims=True)
        uncertain = np.minimum(error, 100.0)  # beyond that, all is possible
        # An uncertain score moves its own weight, and the sum of all by as much as it is a part of
        # it.
        both = uncertain + np.log((value * np.exp(uncertain)).sum(1, keepdims=True))
        logarithm = (2 * LOG_ULP + 2) * np.log(x.shape[1])
        exponent = 3 * (np.abs(distance) + both) + 2 * np.abs(largest) + logarithm
        relative = UNIT * exponent + 2 * UNIT * EXP_ULP
        # Terms too small to matter in the sum bring no more error than their own weight.
        shared = (value * relative).sum(1, keepdims=True) + FLOAT32.sum_factor(x.shape[1])
        spread = np.expm1(both)
        rounding = value * (relative + shared + 2 * UNIT * DIVIDE_ULP) * (1 + spread) * (1 + 2**-8)
        bound = rounding + value * spread + x.shape[1] * SMALLEST_NORMAL
        # A probability is between 0 and 1, whatever the scores are.
        return Truth(value, np.minimum(bound, np.maximum(value, 1 - value) + 2.0**-20))

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        import torch

        return lambda x: torch.softmax(x, 1)

    def onnx(self) -> tuple[OnnxNode, ...]:
        return (OnnxNode("Softmax"),)

    @classmethod
    def examples(cls) -> list[Example]:
        return [((size,), cls()) for size in (1, 32, 15, 17, 33, 1025)]

    def inputs(
        self, shape: Shape, largest: float, generator: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        peaks = generator.normal(size=shape)
        at = generator.integers(shape[1], size=len(peaks))
        at[:2] = 0, shape[1] - 1  # a largest score that is not looked for there overflows
        peaks[np.arange(len(peaks)), at] += 200
        return {
            "far below zero": generator.uniform(-520, -500, shape),
            "one score far above the others": peaks,
        }
