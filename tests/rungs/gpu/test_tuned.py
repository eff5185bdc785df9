from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.rungs.gpu.geometries import geometries
from tests.rungs.gpu.kernels import USUAL
from tilewright.rungs.gpu import tuned
from tilewright.rungs.gpu.design import Geometry
from tilewright.runtime.dialect import DoesNotFit

CIFAR10_CONV2 = Geometry(16, 16, 16, 20, 5, 5, 1, 1, 2, 2, 16, 16)


@examples(30)
@given(geometries(), st.sampled_from([48, 32, 16, 4]), st.sampled_from([1024, 256, 64]))
def test_the_chosen_tile_fits(geometry, kibibytes, threads):
    limits = replace(USUAL, shared_bytes=kibibytes * 1024, threads=threads)
    try:
        tile = tuned.choose(geometry, limits)
    except DoesNotFit as error:
        # A row of channels, one filter group: nothing smaller is known.
        smallest = tuned.Tile(1, 1, 1, 1, 4, 1)
        assert 4 * tuned.shared_floats(geometry, smallest) > limits.shared_bytes
        assert f"{geometry.taps_y}x{geometry.taps_x}" in str(error)
        return
    work = tuned.build(geometry, asdict(tile)).works[0]
    work.source.check(limits)
    assert tile.threads == work.source.block[0] <= threads
    assert tile.filters_each % 4 == 0  # weights are loaded four at a time
    constants = dict(work.source.constants)
    assert constants["TILES_Y"] * tile.rows >= geometry.out_y
    assert constants["TILES_X"] * tile.columns * tuned.WIDE >= geometry.out_x
    assert constants["CHANNELS_PADDED"] % tile.staged == 0
    assert constants["CHANNELS_PADDED"] >= geometry.channels


@given(geometries(), st.integers(1, 8), st.integers(1, 16))
def test_rows_are_long_enough_and_keep_vectors_aligned(geometry, columns, rows):
    tile = tuned.Tile(columns, rows, 1, 1, 4, 1)
    width = tuned.pitch(geometry, tile)
    assert width % 4 == 0
    # The last thread of a row loads whole vectors from its first pixel to its last.
    first = (columns - 1) * tuned.WIDE * geometry.stride_x
    segment = (tuned.WIDE - 1) * geometry.stride_x + geometry.taps_x
    assert width >= first + segment
    assert width >= first + -(-segment // 4) * 4


@pytest.mark.parametrize("columns", [1, 2, 4, 8])
@pytest.mark.parametrize("stride_y", [1, 3])
@pytest.mark.parametrize("taps_x", range(1, 12))
def test_eight_threads_load_from_all_banks(columns, stride_y, taps_x):
    """At stride 1 along x a pitch without conflicts exists, and is found."""
    geometry = replace(CIFAR10_CONV2, taps_x=taps_x, stride_y=stride_y)
    width = tuned.pitch(geometry, tuned.Tile(columns, 8, 1, 1, 4, 1))
    banks = [
        (thread // columns * stride_y * width + thread % columns * 4 + value) % 32
        for thread in range(8)
        for value in range(4)
    ]
    assert sorted(banks) == list(range(32))


def test_a_window_too_large_for_the_device():
    geometry = Geometry(1, 120, 120, 1, 120, 120, 1, 1, 0, 0, 1, 1)
    with pytest.raises(DoesNotFit, match="49,152 bytes of shared memory for a window of 120x120"):
        tuned.choose(geometry, USUAL)


def test_weights_are_packed_in_the_order_they_are_needed():
    """By block of filters, channel, tap, filter; what is added are zeros."""
    geometry = replace(CIFAR10_CONV2, filters=6, channels=3, taps_y=2, taps_x=3)
    tile = tuned.Tile(1, 4, 1, 1, 4, 2)
    weight = np.random.default_rng(0).normal(size=(6, 3, 2, 3)).astype(np.float32)
    bias = np.arange(6, dtype=np.float32)
    packed = tuned.build(geometry, asdict(tile)).pack(weight, bias)
    assert packed["weight"].shape == (2, 4, 2, 3, 4)
    assert packed["weight"].flags.c_contiguous
    for filter_ in range(6):
        block, place = divmod(filter_, 4)
        np.testing.assert_array_equal(packed["weight"][block, :3, ..., place], weight[filter_])
    assert np.count_nonzero(packed["weight"]) == weight.size
    assert packed["bias"] is bias


def test_the_model_prefers_full_tiles():
    """Rows computed in vain, or filters, cost as much as others."""
    full = tuned.Tile(4, 16, 1, 1, 4, 4)
    assert tuned.cost(CIFAR10_CONV2, full) < tuned.cost(CIFAR10_CONV2, replace(full, rows=9))
    wide = replace(full, filters_each=8)  # 20 filters in 3 groups of 8
    assert tuned.cost(CIFAR10_CONV2, replace(full, groups=5)) < tuned.cost(
        CIFAR10_CONV2, replace(wide, groups=8)
    )
    chosen = tuned.choose(CIFAR10_CONV2, USUAL)
    assert 20 % chosen.filters == 0
