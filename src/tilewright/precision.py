"""The arithmetic that a rung claims, and what it is held to: roundings of operands and of sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

UNIT = 2.0**-24  # unit roundoff of float32, in which every output is stored


@dataclass(frozen=True)
class Precision:
    """The arithmetic a rung claims: roundoff of operands (0: as given) and sums, error of tanh, and
    of the logistic function, whatever its size.

    `operand_smallest` is the absolute error of operands too small for the relative one, `largest`
    the largest operand. `stored`: activations between layers are rounded like operands.
    """

    name: str
    operand_unit: float
    accumulator_unit: float
    tanh_ulp: float = 5
    operand_smallest: float = 0.0
    largest: float = float(np.finfo(np.float32).max)
    stored: bool = False
    sigmoid_error: float = 0.0

    def sum_factor(self, roundings: Array | float, rounded_operands: bool = True) -> Array:
        """The relative error of a sum in which a product meets that many roundings."""
        n = np.asarray(roundings) * self.accumulator_unit
        operands = (1 + self.operand_unit) ** 2 if rounded_operands else 1.0
        return np.where(n < 1, operands * (1 + n / np.maximum(1 - n, UNIT)) - 1, np.inf)

    def holds(self, values: Array) -> NDArray[np.bool_]:
        """Which numbers an operand holds as they are."""
        if self.operand_unit == 0:
            return np.ones(values.shape, bool)
        mantissa = np.frexp(values)[0] / self.operand_unit
        held: NDArray[np.bool_] = mantissa == np.rint(mantissa)
        held &= np.abs(values) <= self.largest
        if self.operand_smallest:
            steps = values / (2 * self.operand_smallest)
            held &= steps == np.rint(steps)
        return held


FLOAT32 = Precision("fp32", 0.0, UNIT)
# Tensor cores round operands to 11 bits. They add a handful of products at once, aligned to the
# largest and cut off below its 24th bit at the earliest (Fasi, Higham, Mikaitis, Pranesh,
# *Numerical behavior of NVIDIA tensor cores*, 2021), which costs each addend at most twice what
# rounding to nearest would; taken twice again, to be safe.
TF32 = Precision("tf32", 2.0**-11, 2.0**-22)
FP16 = Precision(
    "fp16", 2.0**-11, 2.0**-22, operand_smallest=2.0**-25, largest=65504.0, stored=True
)
# What a kernel may claim of its arithmetic, by name.
CLASSES = {each.name: each for each in (FLOAT32, TF32, FP16)}
