"""Floats as two operands of tensor cores: what is lost, against what the class `tf32x3` allows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.fuse.cuda.instructions import multiplied, parts, products
from tilewright.fuse.cuda.arithmetic import ARITHMETICS
from tilewright.precision import TF32, TF32X3

EVERY = np.arange(2**23, 2**24).astype(np.float32)  # all mantissas


def test_no_mantissa_loses_more_than_is_claimed() -> None:
    high, low = parts(EVERY).values()
    assert TF32.holds(high).all() and TF32.holds(low).all()
    lost = Fraction(float((np.abs(EVERY - high - low) / EVERY).max()))
    least = Fraction(float((np.abs(low) / EVERY).max()))
    # Of both operands, and the product that is left out.
    assert (1 + lost) ** 2 - 1 + least**2 <= (1 + Fraction(TF32X3.operand_unit)) ** 2 - 1
    # Where they are exact, within what sums are allowed: three addends, each cut off.
    assert 3 * Fraction(2) ** -23 + least**2 <= Fraction(TF32X3.accumulator_unit)


def test_numbers_that_it_holds_are_two_operands_exactly() -> None:
    held = TF32X3.holds(EVERY.astype(np.float64))
    high, low = parts(EVERY).values()
    assert held.sum() == 2**21
    assert (high + low == EVERY)[held].all()
    assert not (high + low == EVERY).all()


@pytest.mark.parametrize("power", [-149, -136, -130, -126, -120, -114, 100, 103])
def test_numbers_of_every_size(power: int) -> None:
    """Where what is left is too small for 11 bits, less is lost than numbers that are flushed."""
    generator = np.random.default_rng(0)
    whole = np.ldexp(generator.integers(1, 2**24, 1000), power).astype(np.float32)
    high, low = parts(-whole).values()
    assert np.isfinite(low).all()
    lost = np.abs(whole + high + low)
    assert (lost <= np.maximum(2.0**-23 * whole, 2.0**-136)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.finfo(np.float32).max])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_has_no_nearest_operand_is_no_number(value: float) -> None:
    columns = np.ones((1, 1))
    assert np.isnan(products(np.array([[value]]), columns, ARITHMETICS["tf32x3"])).all()


def test_a_product_is_three_of_parts() -> None:
    """Both have 12 bits: what is left of one times what is left of the other is missing."""
    rows, columns = np.array([[4095.0, 4097.0]]), np.array([[4095.0], [1.0]])
    assert products(rows, columns, ARITHMETICS["tf32x3"]) == 4095**2 - 1 + 4097
    assert multiplied("multiply") == multiplied("multiply_half")
    assert len(multiplied("multiply")) == ARITHMETICS["tf32x3"].products
