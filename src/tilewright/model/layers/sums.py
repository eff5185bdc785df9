"""The truth of layers of weighted sums: the same sums, over different products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers.base import Weights
from tilewright.model.layers.rounding import SMALLEST_NORMAL, Array, Truth, step
from tilewright.precision import UNIT, Precision

Places = tuple[NDArray[np.int64], NDArray[np.int64]]


def weighted_sum(
    products: Callable[[Array, Array], Array],
    x: Array,
    error: Array,
    weights: Weights,
    precision: Precision,
) -> Truth:
    """`products` adds up all products of inputs and weights that belong to an output."""
    weight = weights["weight"].astype(np.float64)
    bias = weights.get("bias")
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
        unit = min(step(x) * step(weight), np.inf if bias is None else step(bias))
        if unit >= SMALLEST_NORMAL:
            bound = np.where(magnitude * precision.accumulator_unit <= unit, 0.0, bound)
    return Truth(value, bound)


def few(weight: Array) -> Places | None:
    """Where a matrix is not zero, if that is at few places."""
    outputs, inputs = np.nonzero(weight)
    return None if 8 * len(outputs) > weight.size else (outputs, inputs)


def dense(x: Array, weight: Array, places: Places | None) -> Array:
    """Every output's sum; where weights are few, of these alone."""
    if places is None:
        return x @ weight.T
    outputs, inputs = places
    total = np.zeros((len(x), len(weight)))
    if len(outputs):
        present, starts = np.unique(outputs, return_index=True)
        total[:, present] = np.add.reduceat(x[:, inputs] * weight[places], starts, axis=1)
    return total
