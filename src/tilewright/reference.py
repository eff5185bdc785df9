"""The truth: every layer in float64, and how far from it a right kernel may be.

`layer` returns a layer's output `value` and a `bound`: no correct kernel of the stated precision,
whatever order it adds in, is further from the value than the bound. The bound is computed, not
chosen:

- A sum of n products accumulated with unit roundoff u has an error of at most γ·Σ|w||x| with
  γ = n·u / (1 − n·u) (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1);
  operands that were rounded first (fp16, TF32) add their own roundoff twice.
- Where all operands are whole numbers that the precision holds exactly, and Σ|w||x| fits the
  accumulator's mantissa, every partial sum is exact in any order: the bound is zero.
- Maxima and ReLU are exact. tanh, exp and division may be off by what the OpenCL specification
  allows its full profile (5, 3 and 2.5 ulp); CUDA and the CPU libraries promise no more. Softmax
  is exp(x − max) over its sum; other formulas have other errors.
- Numbers below the smallest normal one, operands and results, may be taken for zero.

A correct kernel here is one that adds up products. Algorithms that trade products for sums of
inputs (Winograd, FFT, Strassen) have larger errors, and sums that leave the range of float32 on
the way have no bound at all.

An input that is itself uncertain by `error` (the output of the layer before) widens the bound
by what the layer can make of it, so that bounds can be carried through a whole network. Carried
bounds are worst cases and soon loose: layers are checked one by one wherever they can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import AveragePool, Convolution, FullyConnected, Pixels, Pooling
from tilewright.model.network import Parameters, Stage

Array = NDArray[np.float64]

UNIT = 2.0**-24  # unit roundoff of float32, in which every output is stored
SMALLEST_NORMAL = 2.0**-126  # below it a device may flush to zero
EXP_ULP, DIVIDE_ULP = 3, 2.5


@dataclass(frozen=True)
class Precision:
    """The arithmetic a rung claims: roundoff of operands (0: as given) and sums, error of tanh.

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

    def sum_factor(self, roundings: float) -> float:
        """The relative error of a sum in which a product meets that many roundings."""
        n = roundings * self.accumulator_unit
        if n >= 1:
            return float("inf")
        return (1 + self.operand_unit) ** 2 * (1 + n / (1 - n)) - 1


FLOAT32 = Precision("fp32", 0.0, UNIT)
# Tensor cores round operands to 11 bits. They add a handful of products at once, aligned to the
# largest and cut off below its 24th bit at the earliest (Fasi, Higham, Mikaitis, Pranesh,
# *Numerical behavior of NVIDIA tensor cores*, 2021), which costs each addend at most twice what
# rounding to nearest would; taken twice again, to be safe.
TF32 = Precision("tf32", 2.0**-11, 2.0**-22)
FP16 = Precision(
    "fp16", 2.0**-11, 2.0**-22, operand_smallest=2.0**-25, largest=65504.0, stored=True
)


@dataclass(frozen=True)
class Truth:
    """A layer's output in float64, and the largest error a right kernel can have."""

    value: Array
    bound: Array


def layer(
    stage: Stage,
    parameters: Parameters,
    x: NDArray[np.generic],
    error: Array | None = None,
    precision: Precision = FLOAT32,
) -> Truth:
    """One layer of a batch `x` whose values are uncertain by `error` (None: exact)."""
    exact = np.asarray(x, np.float64)
    uncertain = np.zeros_like(exact) if error is None else error
    operation = stage.layer
    if isinstance(operation, Pixels):
        # Images that are float32 already enter the network as they are.
        return _pixels(operation, exact) if x.dtype == np.uint8 else Truth(exact, uncertain)
    if isinstance(operation, (Convolution, FullyConnected)):
        return _weighted_sum(stage, parameters, exact, uncertain, precision)
    if isinstance(operation, AveragePool):
        return _average(operation, exact, uncertain)
    if isinstance(operation, Pooling):
        value = _taps(operation, exact).max(0)
        return Truth(value, _taps(operation, uncertain).max(0) + _flushed(value))
    if stage.kind == "relu":
        value = np.maximum(exact, 0)
        return Truth(value, uncertain + _flushed(value))
    if stage.kind == "tanh":
        value = np.tanh(exact)
        error = precision.tanh_ulp * _ulp(np.minimum(np.abs(value) + uncertain, 1))
        return Truth(value, uncertain + error + SMALLEST_NORMAL)
    if stage.kind == "flatten":
        return Truth(exact.reshape(len(x), -1), uncertain.reshape(len(x), -1))
    assert stage.kind == "softmax", stage.kind
    return _softmax(exact, uncertain)


def chain(
    stages: Sequence[Stage],
    parameters: Parameters,
    x: NDArray[np.generic],
    precision: Precision = FLOAT32,
) -> list[Truth]:
    """Consecutive layers of a batch, the bounds carried from one to the next."""
    truths: list[Truth] = []
    error: Array | None = None
    for stage in stages:
        truth = layer(stage, parameters, x, error, precision)
        truths.append(truth)
        x, error = truth.value, truth.bound
        if precision.stored:
            error = error + _stored(truth, precision)
    return truths


def _stored(truth: Truth, precision: Precision) -> Array:
    """What rounding to an operand costs; nothing, if the value is certain and such a number."""
    size = np.abs(truth.value) + truth.bound
    kept = (
        (truth.bound == 0)
        & (truth.value == np.rint(truth.value))
        & (size * precision.operand_unit <= 1)
    )
    return np.where(kept, 0.0, precision.operand_unit * size + precision.operand_smallest)


def _pixels(operation: Pixels, x: Array) -> Truth:
    """Scale and shift, each rounded to float32, then a product and a sum."""
    value = x * operation.scale + operation.shift
    magnitude = np.abs(x * operation.scale) + abs(operation.shift)
    return Truth(value, FLOAT32.sum_factor(3) * magnitude + 256 * SMALLEST_NORMAL)


def _weighted_sum(
    stage: Stage, parameters: Parameters, x: Array, error: Array, precision: Precision
) -> Truth:
    """Convolutions and fully connected layers: the same sums, over different products."""
    operation = stage.layer
    weight = parameters[f"{stage.name}.weight"].astype(np.float64)
    bias = parameters.get(f"{stage.name}.bias")

    def products(values: Array, weights: Array) -> Array:
        if isinstance(operation, Convolution):
            return convolve(values, weights, operation)
        return values.reshape(len(values), -1) @ weights.T

    value = products(x, weight)
    magnitude = products(np.abs(x) + error, np.abs(weight))
    if bias is not None:
        column = bias.astype(np.float64).reshape(-1, *[1] * (value.ndim - 2))
        value = value + column
        magnitude = magnitude + np.abs(column)
    # One rounding for the product, one for each addition; the bias is one more addition.
    terms = weight[0].size
    roundings = terms + (bias is not None)
    factor = precision.sum_factor(roundings)
    bound = np.where(magnitude > 0, factor * np.maximum(magnitude, SMALLEST_NORMAL), 0.0)
    # Results flushed, one for each term, and operands flushed, each with all its partners.
    largest = float(np.abs(x).max(initial=0)), float(np.abs(weight).max(initial=0))
    bound += terms * SMALLEST_NORMAL * (1 + sum(largest))
    if precision.operand_smallest and not (_exact(x, precision) and _exact(weight, precision)):
        ones = np.ones_like(weight)
        bound += precision.operand_smallest * (
            products(np.abs(x) + error, ones) + products(np.ones_like(x), np.abs(weight) + 1)
        )
    if precision.accumulator_unit < UNIT:
        bound += UNIT * (np.abs(value) + bound)  # the sum is rounded once more when it is stored
    if error.any():
        bound += products(error, np.abs(weight))
    elif _exact(x, precision) and _exact(weight, precision) and (bias is None or _whole(bias)):
        bound = np.where(magnitude * precision.accumulator_unit <= 1, 0.0, bound)
    return Truth(value, bound)


def convolve(x: Array, weight: Array, operation: Convolution) -> Array:
    """One tap of the kernel after the other: a strided picture times filters x channels."""
    (pad_y, pad_x), (stride_y, stride_x) = operation.padding, operation.stride
    padded = np.pad(x, ((0, 0), (0, 0), (pad_y, pad_y), (pad_x, pad_x)))
    images, channels, height, width = padded.shape
    filters, _, kernel_y, kernel_x = weight.shape
    out_y = (height - kernel_y) // stride_y + 1
    out_x = (width - kernel_x) // stride_x + 1
    total = np.zeros((images, filters, out_y * out_x))
    for ky in range(kernel_y):
        for kx in range(kernel_x):
            rows = slice(ky, ky + (out_y - 1) * stride_y + 1, stride_y)
            columns = slice(kx, kx + (out_x - 1) * stride_x + 1, stride_x)
            tap = padded[:, :, rows, columns].reshape(images, channels, -1)
            total += weight[:, :, ky, kx] @ tap
    return total.reshape(images, filters, out_y, out_x)


def _taps(operation: Pooling, x: Array) -> Array:
    """All pictures seen through one place of the pooling window, stacked."""
    (size_y, size_x), (stride_y, stride_x) = operation.size, operation.stride
    out_y = (x.shape[2] - size_y) // stride_y + 1
    out_x = (x.shape[3] - size_x) // stride_x + 1
    return np.stack([
        x[:, :, ky : ky + (out_y - 1) * stride_y + 1 : stride_y,
          kx : kx + (out_x - 1) * stride_x + 1 : stride_x]
        for ky in range(size_y) for kx in range(size_x)
    ])  # fmt: skip


def _average(operation: AveragePool, x: Array, error: Array) -> Truth:
    """A sum of `size` terms, then a division, or a product with a rounded reciprocal."""
    taps, errors = _taps(operation, x), _taps(operation, error)
    magnitude = (np.abs(taps) + errors).mean(0)
    rounding = FLOAT32.sum_factor(len(taps) - 1 + 2 * DIVIDE_ULP) * magnitude
    rounding += len(taps) * SMALLEST_NORMAL
    return Truth(taps.mean(0), rounding + errors.mean(0))


def _softmax(x: Array, error: Array) -> Truth:
    """exp(x − max) over its sum: relative errors of each step, added up.

    The subtraction is off by u·|x − max|, which exp turns into a relative error; exp adds its
    own, the sum of n terms γ, the division its own. An uncertain score is a factor exp(error).
    """
    distance = x - x.max(1, keepdims=True)
    weight = np.exp(distance)
    value = weight / weight.sum(1, keepdims=True)
    both = np.minimum(error + error.max(1, keepdims=True), 100.0)  # beyond that, all is possible
    relative = UNIT * (np.abs(distance) + both) + 2 * UNIT * EXP_ULP
    # Terms too small to matter in the sum bring no more error than their own weight.
    shared = (value * relative).sum(1, keepdims=True) + FLOAT32.sum_factor(x.shape[1])
    spread = np.expm1(both)
    rounding = value * (relative + shared + 2 * UNIT * DIVIDE_ULP) * (1 + spread) * (1 + 2**-8)
    bound = rounding + value * spread + x.shape[1] * SMALLEST_NORMAL
    # A probability is between 0 and 1, whatever the scores are.
    return Truth(value, np.minimum(bound, np.maximum(value, 1 - value) + 2.0**-20))


def _flushed(value: Array) -> Array:
    """What a result may lose if it is below the smallest normal number."""
    return np.where(np.abs(value) < SMALLEST_NORMAL, np.abs(value), 0.0)


def _ulp(value: Array) -> Array:
    """The distance between neighbouring float32 numbers at `value`."""
    return np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)


def _whole(values: NDArray[np.floating]) -> bool:
    return bool((values == np.rint(values)).all())


def _exact(values: Array, precision: Precision) -> bool:
    """Whether these are whole numbers that survive the rounding of operands."""
    return _whole(values) and float(np.abs(values).max()) * precision.operand_unit <= 1
