"""The arithmetic that a rung claims, and what it is held to: roundings of operands and of sums."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

MOST_DYADIC = 2**10  # a larger denominator is that of a rounded number
UNIT = 2.0**-24  # unit roundoff of float32, in which every output is stored


Matrix = tuple[tuple[float, ...], ...]
Pair = tuple[int, int]


@dataclass(frozen=True)
class Transforms:
    """A Winograd algorithm, in one dimension: outputs are Aᵀ[(G g) ⊙ (Bᵀ d)].

    `inverse` is Aᵀ, `filters` is G and `inputs` is Bᵀ.
    """

    inverse: Matrix
    filters: Matrix
    inputs: Matrix

    @property
    def matrices(self) -> tuple[Matrix, Matrix, Matrix]:
        return self.inverse, self.filters, self.inputs

    @property
    def outputs(self) -> int:
        return len(self.inverse)

    @property
    def taps(self) -> int:
        return len(self.filters[0])

    def fits(self, kernel: Pair, stride: Pair, dilation: Pair, groups: int) -> bool:
        """Whether it is for such a convolution: all others are computed directly."""
        whole = (1, 1)
        return (kernel, stride, dilation, groups) == ((self.taps, self.taps), whole, whole, 1)

    @property
    def step(self) -> float | None:
        """The power of two that all entries are multiples of; None if there is no such."""
        entries = (Fraction(entry) for m in self.matrices for row in m for entry in row)
        largest = max(entry.denominator for entry in entries)
        return 1 / largest if largest <= MOST_DYADIC else None


@dataclass(frozen=True)
class Precision:
    """The arithmetic a rung claims: roundoff of operands (0: as given) and sums, error of tanh; how
    far tanh and the logistic function may be off besides, whatever their size.

    `operand_smallest` is the absolute error of operands too small for the relative one, `largest`
    the largest operand. `stored`: activations between layers are rounded like operands. `fast` is
    how convolutions are computed, if not as sums of products (bounds in `tilewright.truth.fast`):
    Winograd algorithms, each for kernels of its size, or by Fourier transforms.
    """

    name: str
    operand_unit: float
    accumulator_unit: float
    tanh_ulp: float = 5
    operand_smallest: float = 0.0
    largest: float = float(np.finfo(np.float32).max)
    stored: bool = False
    sigmoid_error: float = 0.0
    tanh_error: float = 0.0
    fast: tuple[Transforms, ...] | Literal["fft"] | None = None

    def transforms(
        self, kernel: Pair, stride: Pair, dilation: Pair, groups: int
    ) -> Transforms | None:
        """Those that such a convolution may be computed with, if there are any."""
        every = self.fast if isinstance(self.fast, tuple) else ()
        return next((each for each in every if each.fits(kernel, stride, dilation, groups)), None)

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
# rounding to nearest would; taken twice again, to be safe. Where 11 bits are kept of a tanh, it may
# be 1 - 2 / (1 + exp(2x)) by the quick instructions for powers and quotients (`near_tanh` in
# `fuse/cuda/words.cuh`), which is off by less than 2^-20; and the logistic function, in the same
# way, by less than 2^-21.
NEAR_TANH, NEAR_SIGMOID = 2.0**-20, 2.0**-21
TF32 = Precision("tf32", 2.0**-11, 2.0**-22, sigmoid_error=NEAR_SIGMOID, tanh_error=NEAR_TANH)
FP16 = Precision(
    "fp16", 2.0**-11, 2.0**-22, operand_smallest=2.0**-25, largest=65504.0, stored=True,
    sigmoid_error=NEAR_SIGMOID, tanh_error=NEAR_TANH,
)  # fmt: skip
# Of float32 on tensor cores: each operand is two, `high`, the nearest number of 11 bits, and `low`,
# what is left of it. Of a number of 24 bits that has 12, of which the tensor cores read 11, at a
# loss of one unit of the 24th: 2^-23 of the operand. Added up are high times high, high times low
# and low times high; low times low, which is left out, is 2^-22 of the product at most, as low is
# 2^-11 of the operand. Together that is less than two roundings of 2^-22. Whole numbers of 22 bits
# are two such operands exactly; low times low is missing from their product, too, but with that
# each of three addends still costs less than the 2^-22 that TF32's does here.
TF32X3 = Precision("tf32x3", 2.0**-22, 3 * 2.0**-22)
# Tiles of 2x2 and of 4x4 outputs of a 3x3 convolution (Lavin, Gray, *Fast algorithms for
# convolutional neural networks*, 2015).
WINOGRAD_2 = Transforms(
    inverse=((1, 1, 1, 0), (0, 1, -1, -1)),
    filters=((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1)),
    inputs=((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
)
WINOGRAD_4 = Transforms(
    inverse=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
    filters=(
        *((1 / 4, 0, 0), (-1 / 6, -1 / 6, -1 / 6), (-1 / 6, 1 / 6, -1 / 6)),
        *((1 / 24, 1 / 12, 1 / 6), (1 / 24, -1 / 12, 1 / 6), (0, 0, 1)),
    ),
    inputs=(
        *((4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0)),
        *((0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1)),
    ),
)
# Tiles of 2x2 outputs of a 5x5 convolution: as many values of a tile, at the same points.
WINOGRAD_2_OF_5 = Transforms(
    inverse=((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 1)),
    filters=(
        *((1 / 4, 0, 0, 0, 0), (-1 / 6, -1 / 6, -1 / 6, -1 / 6, -1 / 6)),
        *((-1 / 6, 1 / 6, -1 / 6, 1 / 6, -1 / 6), (1 / 24, 1 / 12, 1 / 6, 1 / 3, 2 / 3)),
        *((1 / 24, -1 / 12, 1 / 6, -1 / 3, 2 / 3), (0, 0, 0, 0, 1)),
    ),
    inputs=WINOGRAD_4.inputs,
)
# Of float32 as well, but by an algorithm that does not add up every product: classes of their own,
# so that none of them wins over a direct sum by being less exact.
FP32_WINOGRAD = Precision("fp32-winograd", 0.0, UNIT, fast=(WINOGRAD_2,))
FP32_WINOGRAD4 = Precision("fp32-winograd4", 0.0, UNIT, fast=(WINOGRAD_4, WINOGRAD_2_OF_5))
FP32_FFT = Precision("fp32-fft", 0.0, UNIT, fast="fft")
# What a kernel may claim of its arithmetic, by name.
CLASSES = {
    each.name: each
    for each in (FLOAT32, TF32, TF32X3, FP16, FP32_WINOGRAD, FP32_WINOGRAD4, FP32_FFT)
}
