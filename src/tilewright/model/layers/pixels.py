"""How a picture enters a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.layers.base import Layer, Weights
from tilewright.model.layers.forms import EVERY
from tilewright.model.layers.rounding import SMALLEST_NORMAL, Array, Truth
from tilewright.model.layers.sizes import Shape, whole
from tilewright.precision import FLOAT32, Precision

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Pixels(Layer):
    """How a picture enters the network: a uint8 `value` becomes `value * scale + shift`."""

    kind = "input"
    words = "pixels into numbers"
    forms = EVERY
    input_bytes = 1
    shape: Shape
    scale: float = 1 / 255
    shift: float = -0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) != 3:
            raise TilewrightError(f"input shape {self.shape} is not channels, height, width")
        for size in self.shape:
            whole("input size", size, minimum=1)
        for name, value in (("scale", self.scale), ("shift", self.shift)):
            if not abs(value) <= 1e30:  # true for NaN, too
                raise TilewrightError(f"input {name} must be between -1e30 and 1e30")

    def output_shape(self, shape: Shape) -> Shape:
        return self.shape

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """Scale and shift, each rounded to float32, then a product and a sum."""
        value = x * self.scale + self.shift
        magnitude = np.abs(x * self.scale) + abs(self.shift)
        return Truth(value, FLOAT32.sum_factor(3) * magnitude + 256 * SMALLEST_NORMAL)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: x if x.is_floating_point() else x.float() * self.scale + self.shift
