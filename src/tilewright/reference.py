"""The truth: every layer in float64, and how far from it a right kernel may be.

`layer` returns a layer's output `value` and a `bound`: no correct kernel of the stated precision,
whatever order it adds in, is further from the value than the bound. The bound is computed, not
chosen:

- A sum of n products accumulated with unit roundoff u has an error of at most γ·Σ|w||x| with
  γ = n·u / (1 − n·u) (Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1).
  Products with a zero are exact and so is their addition: n counts the others, output by output.
  Operands that the precision does not hold (fp16, TF32) are rounded first: its roundoff twice.
- Where all operands are multiples of some power of two, and Σ|w||x| in these units fits the
  accumulator's mantissa, every partial sum is exact in any order: the bound is zero.
- Maxima and ReLU are exact. tanh, exp, log and division may be off by what the OpenCL
  specification allows its full profile (5, 3, 3 and 2.5 ulp); CUDA and the CPU libraries promise no
  more. A softmax may be computed by any of the usual formulas: exp(x − max) over its sum, powers of
  two instead, or exp(x − log Σ exp).
- Numbers below the smallest normal one, operands and results, may be taken for zero.

A correct kernel here is one that adds up products. Algorithms that trade products for sums of
inputs (Winograd, FFT) have larger errors and are classes of their own, with bounds from their own
transforms (`tilewright.fast`). Sums that leave the range of float32 on the way have no bound at
all.

An input that is itself uncertain by `error` (the output of the layer before) widens the bound
by what the layer can make of it, so that bounds can be carried through a whole network. Carried
bounds are worst cases and soon loose: layers are checked one by one wherever they can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fast import fast_bound
from tilewright.model.layers import AveragePool, Convolution, FullyConnected, Pixels, Pooling
from tilewright.model.network import Parameters, Stage
from tilewright.precision import FLOAT32, UNIT, Precision

Array = NDArray[np.float64]

SMALLEST_NORMAL = 2.0**-126  # below it a device may flush to zero
EXP_ULP, LOG_ULP, DIVIDE_ULP = 3, 3, 2.5


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
        truth = _weighted_sum(stage, parameters, exact, uncertain, precision)
        if precision.fast is None or not isinstance(operation, Convolution):
            return truth
        return _faster(truth, stage, operation, parameters, exact, uncertain, precision)
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
    kept = (truth.bound == 0) & precision.holds(truth.value)
    return np.where(kept, 0.0, precision.operand_unit * size + precision.operand_smallest)


def _pixels(operation: Pixels, x: Array) -> Truth:
    """Scale and shift, each rounded to float32, then a product and a sum."""
    value = x * operation.scale + operation.shift
    magnitude = np.abs(x * operation.scale) + abs(operation.shift)
    return Truth(value, FLOAT32.sum_factor(3) * magnitude + 256 * SMALLEST_NORMAL)


def _faster(
    truth: Truth,
    stage: Stage,
    operation: Convolution,
    parameters: Parameters,
    x: Array,
    error: Array,
    precision: Precision,
) -> Truth:
    """The same by an algorithm that does not add up every product."""
    weight = parameters[f"{stage.name}.weight"].astype(np.float64)
    bias = parameters.get(f"{stage.name}.bias")
    # What is uncertain is no multiple of anything.
    steps = (0.0 if error.any() else _step(x), _step(weight))
    added = None if bias is None else bias.astype(np.float64)
    wider = fast_bound(operation, np.abs(x) + error, weight, added, precision, steps)
    return Truth(truth.value, truth.bound + wider)


def _weighted_sum(
    stage: Stage, parameters: Parameters, x: Array, error: Array, precision: Precision
) -> Truth:
    """Convolutions and fully connected layers: the same sums, over different products."""
    operation = stage.layer
    weight = parameters[f"{stage.name}.weight"].astype(np.float64)
    bias = parameters.get(f"{stage.name}.bias")

    few = None if isinstance(operation, Convolution) else _few(weight)

    def products(values: Array, weights: Array) -> Array:
        if isinstance(operation, Convolution):
            return convolve(values, weights, operation)
        return _dense(values.reshape(len(values), -1), weights, few)

    value = products(x, weight)
    magnitude = products(np.abs(x) + error, np.abs(weight))
    if bias is not None:
        column = bias.astype(np.float64).reshape(-1, *[1] * (value.ndim - 2))
        value = value + column
        magnitude = magnitude + np.abs(column)
    # One rounding for the product, one for each addition; the bias is one more addition.
    terms = weight[0].size
    roundings: Array | float = terms
    there = (x != 0) | (error > 0)
    if 2 * np.count_nonzero(there) < there.size or 2 * np.count_nonzero(weight) < weight.size:
        roundings = products(there.astype(np.float64), (weight != 0).astype(np.float64))
    held = not error.any() and bool(precision.holds(x).all() and precision.holds(weight).all())
    # A compensated sum (Kahan) of few terms may be off by two units, whatever their number, and its
    # products by one.
    additions = np.asarray(roundings + (bias is not None))
    additions = np.where(additions > 1, np.maximum(additions, 4), additions)
    factor = precision.sum_factor(additions, not held)
    bound = np.where(magnitude > 0, factor * np.maximum(magnitude, SMALLEST_NORMAL), 0.0)
    # Results flushed, one for each term, and operands flushed, each with all its partners.
    largest = float(np.abs(x).max(initial=0)), float(np.abs(weight).max(initial=0))
    bound += terms * SMALLEST_NORMAL * (1 + sum(largest))
    if precision.operand_smallest and not held:
        ones = np.ones_like(weight)
        bound += precision.operand_smallest * (
            products(np.abs(x) + error, ones) + products(np.ones_like(x), np.abs(weight) + 1)
        )
    if precision.accumulator_unit < UNIT:
        bound += UNIT * (np.abs(value) + bound)  # the sum is rounded once more when it is stored
    if error.any():
        bound += products(error, np.abs(weight))
    elif held:
        step = min(_step(x) * _step(weight), np.inf if bias is None else _step(bias))
        if step >= SMALLEST_NORMAL:
            bound = np.where(magnitude * precision.accumulator_unit <= step, 0.0, bound)
    return Truth(value, bound)


Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def _few(weight: Array) -> Places | None:
    """Where a matrix is not zero, if that is at few places."""
    outputs, inputs = np.nonzero(weight)
    return None if 8 * len(outputs) > weight.size else (outputs, inputs)


def _dense(x: Array, weight: Array, few: Places | None) -> Array:
    """Every output's sum; where weights are few, of these alone."""
    if few is None:
        return x @ weight.T
    outputs, inputs = few
    total = np.zeros((len(x), len(weight)))
    if len(outputs):
        present, starts = np.unique(outputs, return_index=True)
        total[:, present] = np.add.reduceat(x[:, inputs] * weight[few], starts, axis=1)
    return total


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
            if not weight[:, :, ky, kx].any():
                continue
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

    What is off in an exponent is a relative error of the result. With d = x − max, m = max and n
    classes the exponent is off by u·|d| as exp(d); by 2u·|d| more where powers of two are taken of
    d·log2(e); by u·(|d| + |m|) where x and m are multiplied before they are subtracted; by
    u·(|d| + |m|) and the errors of a logarithm of up to n as exp(x − (m + log Σ)). exp adds its
    own, the sum of n terms γ, the division its own. An uncertain score is a factor exp(error).
    """
    largest = x.max(1, keepdims=True)
    distance = x - largest
    weight = np.exp(distance)
    value = weight / weight.sum(1, keepdims=True)
    uncertain = np.minimum(error, 100.0)  # beyond that, all is possible
    # An uncertain score moves its own weight, and the sum of all by as much as it is a part of it.
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


def _flushed(value: Array) -> Array:
    """What a result may lose if it is below the smallest normal number."""
    return np.where(np.abs(value) < SMALLEST_NORMAL, np.abs(value), 0.0)


def _ulp(value: Array) -> Array:
    """The distance between neighbouring float32 numbers at `value`."""
    return np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)


def _step(values: NDArray[np.floating]) -> float:
    """The largest power of two that all these numbers are multiples of; infinite for zeros."""
    mantissa, exponent = np.frexp(values[values != 0].astype(np.float64))
    whole = (mantissa * 2.0**53).astype(np.int64)
    return float(np.ldexp((whole & -whole).astype(np.float64), exponent - 53).min(initial=np.inf))
