from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuse.cpu.machines import TARGETS
from tilewright.fuse.cpu.tiles import (
    STAYING_BYTES_A_LANE,
    Block,
    Border,
    Target,
    best_tile,
    block_width,
    blocks_of,
    far_taps,
    near_cycles,
    packed_blocks,
    spans,
    weights_stay,
    with_borders,
)

targets = st.sampled_from(list(TARGETS.values()))


@given(st.integers(1, 300), st.integers(1, 8), targets)
def test_blocks_cover_every_item_once_within_the_registers(items, positions, target):
    width = block_width(items, positions, target)
    assert width == 1 or positions * width + width + 1 <= target.registers
    covered = [
        b.first + i * b.width + c
        for b in blocks_of(items, width)
        for i in range(b.count)
        for c in range(b.width)
    ]
    assert covered == list(range(items))
    assert all(block.width >= 1 and block.count >= 1 for block in blocks_of(items, width))


@given(st.integers(1, 30), st.integers(1, 4), st.integers(1, 7), st.integers(1, 4),
       st.integers(0, 8), st.integers(1, 3))  # fmt: skip
def test_spans_cover_an_axis_and_know_its_valid_taps(size, tiles, kernel, stride, padding, window):
    if size + 2 * padding < kernel:
        return
    tile = tiles * window
    outputs = (size + 2 * padding - kernel) // stride + 1
    found = spans(outputs, tile, kernel, stride, padding, size, window)
    seen = {}
    for span in found:
        for index in range(span.first, span.last):
            for d, (low, high) in enumerate(span.taps):
                position = index * tile + d
                assert position not in seen
                seen[position] = [*range(low, high)]
    assert sorted(seen) == list(range(outputs // window * window))
    for position, taps in seen.items():
        inside = [k for k in range(kernel) if 0 <= position * stride + k - padding < size]
        assert taps == inside
    pieces = with_borders(found, tile, kernel, window)
    covered = []
    for piece in pieces:
        if isinstance(piece, Border):
            covered += range(piece.first * window, piece.last * window)
        else:
            assert set(piece.taps) == {(0, kernel)}
            length = len(piece.taps)
            covered += [i * tile + d for i in range(piece.first, piece.last) for d in range(length)]
    assert covered == sorted(seen)
    assert len(pieces) <= 4


def test_windows_far_outside_the_image_are_one_span():
    assert len(spans(2008, 1, 3, 1, 1000, 10)) <= 7


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 300), st.integers(1, 5000), targets,
       st.sampled_from([(1, 1), (2, 2), (1, 3)]))  # fmt: skip
def test_the_best_tile_fits_the_registers(height, width, channels, depth, target, window):
    tile = best_tile(height, width, channels, depth, target, window)
    assert tile[0] % window[0] == tile[1] % window[1] == 0
    assert tile[0] <= height * window[0]
    assert tile[1] <= width * window[1]
    positions = math.prod(tile)
    for block in packed_blocks(channels, positions, target):
        assert block.sums(positions) + block.width < target.registers


@pytest.mark.parametrize(("fewer", "more"), [(64, 256), (9 * 128, 9 * 512)])
def test_weights_that_do_not_stay_are_read_for_more_positions(fewer, more):
    """256 filters: of 64 taps the first cache holds those of six vectors, of 256 of two; of 9 * 128
    the second holds those of four, of 9 * 512 of two."""
    target = TARGETS["avx512"]
    tiles = [best_tile(8, 8, 256, depth, target) for depth in (fewer, more)]
    few, many = (packed_blocks(256, math.prod(tile), target)[0].width * 16 for tile in tiles)
    assert math.prod(tiles[0]) < math.prod(tiles[1]) and few > many

    def stay(weights: int, depth: int) -> bool:
        if more < 1000:
            return near_cycles(weights, depth) == 0
        return weights_stay(weights * depth, target)

    assert stay(few, fewer) and stay(many, more) and not stay(few, more)


def test_a_block_beyond_the_first_cache_costs_by_its_weights():
    assert near_cycles(64, 128) == 0 < near_cycles(64, 129) < near_cycles(128, 129)


def test_weights_come_from_afar_once_or_for_every_tile():
    target = TARGETS["avx512"]
    blocks = (Block(0, 2, 3), Block(6, 1, 1))
    stay = target.lanes * STAYING_BYTES_A_LANE // 4 // (16 * 7)  # all of them, so deep
    assert list(far_taps(blocks, 16, stay, 10, target)) == []
    assert list(far_taps(blocks, 16, stay + 1, 10, target)) == [(3, 32, True), (1, 16, True)]
    found = list(far_taps(blocks, 16, 4 * stay, 10, target))
    assert found == [(30, 32, False), (1, 16, True)]


@given(st.integers(1, 300), st.integers(1, 12), targets)
def test_packed_blocks_cover_every_channel_once(channels, positions, target):
    blocks = packed_blocks(channels, positions, target)
    items = [b.first + i * b.width + c for b in blocks for i in range(b.count)
             for c in range(b.width)]  # fmt: skip
    assert items == list(range(math.ceil(channels / target.lanes)))
    assert all(block.packed == 1 for block in blocks[:-1])
    if (packed := blocks[-1].packed) > 1:
        assert blocks[-1].count == 1
        assert channels % target.lanes * packed <= target.lanes


def test_what_is_left_over_is_packed_where_it_saves_time():
    """20 channels are two and a half vectors: ten sums for four positions instead of twelve."""
    (block,) = packed_blocks(20, 4, Target(8, 16))
    assert (block.width, block.packed, block.sums(4)) == (3, 2, 10)
    (block,) = packed_blocks(12, 4, Target(8, 16))  # six sums would wait for each other
    assert block.packed == 1
