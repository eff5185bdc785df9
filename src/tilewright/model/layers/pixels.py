"""How a picture enters a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """How a picture enters the network: a uint8 `value` becomes `value * scale + shift`.

    Both may be one number, or one for each channel.
    """

    kind = "input"
    words = "pixels into numbers"
    forms = EVERY
    input_bytes = 1
    shape: Shape
    scale: float | tuple[float, ...] = 1 / 255
    shift: float | tuple[float, ...] = -0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        if len(self.shape) != 3:
            raise TilewrightError(f"input shape {self.shape} is not channels, height, width")
        for size in self.shape:
            whole("input size", size, minimum=1)
        for name in ("scale", "shift"):
            object.__setattr__(self, name, self._numbers(name, getattr(self, name)))

    def _numbers(self, name: str, given: Any) -> float | tuple[float, ...]:
        """Checked; one number where it is the same for all channels."""
        values = tuple(given) if isinstance(given, list | tuple) else (given,) * self.shape[0]
        if len(values) != self.shape[0]:
            raise TilewrightError(
                f"input {name} has {len(values)} numbers for {self.shape[0]} channels"
            )
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TilewrightError(f"input {name} must be a number, not {value!r:.40}")
            if not abs(value) <= 1e30:  # true for NaN, too
                raise TilewrightError(f"input {name} must be between -1e30 and 1e30")
        same: bool = len(set(values)) == 1
        return values[0] if same else values

    @property
    def scales(self) -> tuple[float, ...]:
        """Of every channel."""
        return self.scale if isinstance(self.scale, tuple) else (self.scale,) * self.shape[0]

    @property
    def shifts(self) -> tuple[float, ...]:
        """Of every channel."""
        return self.shift if isinstance(self.shift, tuple) else (self.shift,) * self.shape[0]

    @property
    def specials(self) -> frozenset[str]:
        several = isinstance(self.scale, tuple) or isinstance(self.shift, tuple)
        return frozenset({"pixels scaled channel by channel"} if several else ())

    def output_shape(self, shape: Shape) -> Shape:
        return self.shape

    def truth(self, x: Array, error: Array, weights: Weights, precision: Precision) -> Truth:
        """Scale and shift, each rounded to float32, then a product and a sum."""
        scale, shift = (np.reshape(each, (-1, 1, 1)) for each in (self.scales, self.shifts))
        value = x * scale + shift
        magnitude = np.abs(x * scale) + np.abs(shift)
        return Truth(value, FLOAT32.sum_factor(3) * magnitude + 256 * SMALLEST_NORMAL)

    def torch(self, *parameters: Tensor) -> Callable[[Tensor], Tensor]:
        # Made once: made for every batch, each would be a copy that the host waits for.
        there: dict[object, list[Tensor]] = {}

        def enter(x: Tensor) -> Tensor:
            if x.is_floating_point():
                return x
            values = x.float()
            if x.device not in there:
                there[x.device] = [
                    values.new_tensor(each).reshape(-1, 1, 1) for each in (self.scales, self.shifts)
                ]
            scale, shift = there[x.device]
            return values * scale + shift

        return enter
