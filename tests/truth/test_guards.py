"""Buffers between margins, on the host: what is written where it should not be shows."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.runtime.cpu import CpuRuntime
from tilewright.truth.evidence import OUTPUT_POISON
from tilewright.truth.guards import MARGIN, Guarded, Scratch


def guarded(dtype=np.float32, kind=Guarded, content=None):
    return kind(CpuRuntime(), "output", (3, 4), dtype, OUTPUT_POISON, content)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_all_of_it_is_nan_at_first_and_nothing_is_damaged(dtype):
    made = guarded(dtype)
    assert np.isnan(made.buffer).all()
    assert made.damage() is None


@pytest.mark.parametrize(
    "place, where",
    [(MARGIN - 1, (1, 0, 0)), (MARGIN + 2, (0, 1, 0)), (MARGIN + 9, (0, 1, 0)), (-1, (0, 0, 1))],
    ids=["before", "in the content", "behind the content", "behind it"],
)
def test_a_write_is_found_where_it_is(place, where):
    made = guarded()
    made.fill(np.arange(8, dtype=np.float32))
    assert made.damage() is None
    made.buffer[place] = -3
    found = made.damage()
    assert (found.before, found.inside, found.after) == where
    assert found.first == (place if place >= 0 else len(made.buffer) - 1) - MARGIN
    made.restore()
    assert made.damage() is None
    np.testing.assert_array_equal(made.inside(2).ravel(), np.arange(8))


def test_another_nan_is_a_write():
    made = guarded()
    made.buffer[0] = np.nan
    assert made.damage().before == 1


def test_content_that_is_there_from_the_start():
    made = guarded(np.uint8, content=np.arange(12, dtype=np.uint8).reshape(3, 4))
    np.testing.assert_array_equal(made.inside(3), np.arange(12).reshape(3, 4))
    assert made.damage() is None
    made.buffer[MARGIN] = 7
    assert made.damage().inside == 1


def test_scratch_may_hold_anything_and_its_margins_may_not():
    made = guarded(kind=Scratch)
    made.inside(3)[:] = 5
    assert made.damage() is None
    made.buffer[-MARGIN] = 5
    assert made.damage().after == 1
