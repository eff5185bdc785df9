"""A layer's output in float64 and how far from it a right kernel may be: what bounds are made of.

`tilewright.truth.reference` says where the bounds come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SMALLEST_NORMAL = 2.0**-126  # below it a device may flush to zero
EXP_ULP, LOG_ULP, DIVIDE_ULP = 3, 3, 2.5


@dataclass(frozen=True)
class Truth:
    """A layer's output in float64, and the largest error a right kernel can have."""

    value: Array
    bound: Array


def flushed(value: Array) -> Array:
    """What a result may lose if it is below the smallest normal number."""
    return np.where(np.abs(value) < SMALLEST_NORMAL, np.abs(value), 0.0)


def ulp(value: Array) -> Array:
    """The distance between neighbouring float32 numbers at `value`."""
    return np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)


def step(values: NDArray[np.floating]) -> float:
    """The largest power of two that all these numbers are multiples of; infinite for zeros."""
    mantissa, exponent = np.frexp(values[values != 0].astype(np.float64))
    whole = (mantissa * 2.0**53).astype(np.int64)
    return float(np.ldexp((whole & -whole).astype(np.float64), exponent - 53).min(initial=np.inf))
