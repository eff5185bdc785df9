"""Of every value another one: what files say of products, bounds and slopes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.gates import Found, chosen, gated, logarithm
from tilewright.model.formats.parts import CLOSE, Above, Array, Value
from tilewright.model.formats.sums import Sums
from tilewright.model.layers import (
    ELU,
    HardSigmoid,
    LeakyReLU,
    Multiply,
    ReLU,
    ReLU6,
    Shape,
    Softplus,
    dimensions,
)

# A clip is computed by a line between its bounds, which are not to be much larger than values.
LARGEST_BOUND = 64
# SELU's alpha and scale, as PyTorch and ONNX have them.
SELU = (1.6732632423543772, 1.0507009873554805)


class Values(Sums):
    """Products of values, and activations that files write in pieces."""

    def difference(self, name: str, a: Value, b: Value) -> Value:
        return self.sum(name, a, self.affine(name, b, np.array(-1.0), np.array(0.0)))

    def product(self, name: str, a: Value, b: Value) -> Value:
        """Of two values: an activation that gates its own argument, or any others."""
        for x, gate in ((a, b), (b, a)):
            if x.expanded or replace(gate, part=x.part) != x:
                continue  # they are not at the same places
            if (found := gated(self.parts, gate.part, x.part)) is not None:
                return self._found(name, x, found)

        def large(each: Value) -> tuple[int, int]:
            shape = self.parts[each.part].shape
            return math.prod(shape), len(shape)

        return self._product(name, *sorted((a, b), key=large, reverse=True))

    def _found(self, name: str, x: Value, found: Found) -> Value:
        """An activation that was recognised, at the places of a value."""
        layer, part, factor = found
        made = self.each(name, layer, replace(x, part=part))
        return self.affine(name, made, np.array(factor), np.array(0.0))

    def softplus(self, name: str, x: Value, times: float = 1.0) -> Value:
        """Of so many times a value, divided by that."""
        if not times > 0:
            raise TilewrightError(f"a softplus with a beta of {times:g}")
        scaled = self.affine(name, x, np.array(times), np.array(0.0))
        made = self.each(name, Softplus(), scaled)
        return self.affine(name, made, np.array(1 / times), np.array(0.0))

    def logarithm(self, name: str, x: Value, added: float = 0.0) -> Value:
        """Of a value and a number added to it."""
        if (found := logarithm(self.parts, x.part, added)) is None:
            raise TilewrightError("a logarithm; that of 1 + exp(x) is understood")
        layer, part, sign = found
        zero = np.array(0.0)
        turned = self.affine(name, replace(x, part=part), np.array(sign), zero)
        return self.affine(name, self.each(name, layer, turned), np.array(sign), zero)

    def above(self, name: str, x: Value, bound: float) -> Value:
        return self.each(name, Above(bound), x)

    def where(self, name: str, condition: Value, above: Value, below: Value) -> Value:
        """One of two values, where that is an activation."""
        alike = all(replace(each, part=above.part) == above for each in (condition, below))
        found = chosen(self.parts, condition.part, above.part, below.part) if alike else None
        if found is None:
            raise TilewrightError(
                "chooses between values; softplus, ELU and leaky ReLU are understood"
            )
        return self._found(name, above, found)

    def _product(self, name: str, x: Value, by: Value) -> Value:
        """Of a value and of one that has no more numbers, as the file's shapes broadcast."""
        wanted, repeated = self.shape(x), self.shape(by)
        x, by = replace(x, expanded=None), replace(by, expanded=None)
        shape, own = self.shape(x), self.shape(by)
        if wanted != shape or repeated not in (own, shape):
            raise TilewrightError("multiplies values that were both repeated")
        if (x.last, x.rows, len(shape)) != (by.last, by.rows, len(own)):
            raise TilewrightError(
                f"multiplies {dimensions(shape)} by {dimensions(own)}, whose axes are in another "
                "order"
            )
        return replace(x, part=self.add(name, Multiply(), x, by).part)

    def expand(self, x: Value, shape: Shape) -> Value:
        """Values repeated along axes where they have one place."""
        own = self.shape(x)
        if len(own) != len(shape) or any(
            size not in (1, whole) for size, whole in zip(own, shape, strict=True)
        ):
            raise TilewrightError(f"repeats {dimensions(own)} to {dimensions(shape)}")
        return x if own == shape else replace(x, expanded=shape)

    def clip(self, name: str, x: Value, low: float, high: float) -> Value:
        if low == 0 and high == 6:
            return self.each(name, ReLU6(), x)
        if low == 0 and high >= float(np.finfo(np.float32).max):
            return self.each(name, ReLU(), x)
        before = self.parts[x.part]
        if low == -np.inf and high == 6 and isinstance(before.layer, ReLU):
            return self.each(name, ReLU6(), replace(x, part=before.sources[0]))
        if low == -np.inf and isinstance(before.layer, ReLU) and high > 0:
            return self.clip(name, replace(x, part=before.sources[0]), 0, high)
        bounds = [abs(each) for each in (low, high) if np.isfinite(each)]
        if not bounds or low >= high or max(bounds) > LARGEST_BOUND:
            raise TilewrightError(
                f"clips to {low:g} and {high:g}; bounds up to {LARGEST_BOUND} are understood"
            )
        if len(bounds) == 2:
            # A line from zero to one, and what it is that these stand for.
            line = HardSigmoid(decimal(1 / (high - low)), decimal(-low / (high - low)))
            made = self.each(name, line, x)
            return self.affine(name, made, np.array(high - low), np.array(low))
        # What is beyond the bound, and the bound.
        sign, bound = (1.0, low) if np.isfinite(low) else (-1.0, high)
        beyond = self.affine(name, x, np.array(sign), np.array(-sign * bound))
        made = self.each(name, ReLU(), beyond)
        return self.affine(name, made, np.array(sign), np.array(bound))

    def prelu(self, name: str, x: Value, slopes: Array) -> Value:
        """Slopes are broadcast as constants are. Those that differ: the value times them, and where
        it is positive what is missing."""
        if slopes.size == 0:
            raise TilewrightError("has no slopes")
        if (slopes == slopes.flat[0]).all():
            return self.leaky(name, x, float(slopes.flat[0]))
        wide, zero = slopes.astype(np.float64), np.array(0.0)
        positive = self.affine(name, self.each(name, ReLU(), x), 1 - wide, zero)
        return self.sum(name, self.affine(name, x, wide, zero), positive)

    def leaky(self, name: str, x: Value, slope: float) -> Value:
        return self.each(name, LeakyReLU(decimal(slope)), x)

    def elu(self, name: str, x: Value, alpha: float, scale: float = 1.0) -> Value:
        made = self.each(name, ELU(decimal(alpha)), x)
        return self.affine(name, made, np.array(scale), np.array(0.0))

    def celu(self, name: str, x: Value, alpha: float) -> Value:
        """An ELU of x / alpha, alpha times."""
        if not alpha > 0:
            raise TilewrightError(f"a CELU with an alpha of {alpha:g}")
        narrowed = self.affine(name, x, np.array(1 / alpha), np.array(0.0))
        return self.elu(name, narrowed, 1.0, alpha)

    def hard_sigmoid(self, name: str, x: Value, slope: float = 1 / 6, shift: float = 0.5) -> Value:
        usual = abs(slope - 1 / 6) <= CLOSE and abs(shift - 0.5) <= CLOSE
        layer = HardSigmoid() if usual else HardSigmoid(decimal(slope), decimal(shift))
        return self.each(name, layer, x)

    def absolute(self, name: str, x: Value) -> Value:
        """What is positive of a value, and of it turned round."""
        turned = self.affine(name, x, np.array(-1.0), np.array(0.0))
        return self.sum(name, self.each(name, ReLU(), x), self.each(name, ReLU(), turned))

    def power(self, name: str, x: Value, exponent: float) -> Value:
        """A value times itself, once or twice."""
        if exponent not in (2, 3):
            raise TilewrightError(f"to the power of {exponent:g}; 2 and 3 are understood")
        square = self.product(name, x, x)
        return square if exponent == 2 else self.product(name, square, x)


def decimal(value: float) -> float:
    """The decimal number that was rounded to float32, so that 0.01 is 0.01."""
    return float(str(np.float32(value)))
