from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tests.examples import examples
from tests.rungs.gpu.geometries import geometries
from tests.rungs.gpu.kernels import GPU_RUNGS, USUAL
from tilewright.rungs.gpu import direct, per_layer
from tilewright.rungs.gpu.design import (
    Convolutions,
    Geometry,
    Work,
    fitting_tile,
    oblong_tiles,
    plane_block,
    plane_tiles,
    power_of_two,
    shared_size,
    source,
    square_tiles,
    tiles,
)
from tilewright.runtime.dialect import USUAL_THREADS, DoesNotFit


def test_a_geometry_has_the_layers_numbers():
    stage = tilewright.load("cifar10").stages[1]
    geometry = Geometry.of(stage)
    assert geometry == Geometry(3, 32, 32, 16, 5, 5, 1, 1, 2, 2, 32, 32, padded=1)
    assert (geometry.taps, geometry.positions, geometry.outputs) == (75, 1024, 16384)
    assert geometry.constants["TAPS_Y"] == 5
    assert 2 * geometry.outputs * geometry.taps == stage.flops


@given(st.integers(1, 10**6), st.integers(1, 1000))
def test_tiles_cover(size, tile):
    assert (tiles(size, tile) - 1) * tile < size <= tiles(size, tile) * tile


@given(st.integers(1, 10**6), st.integers(0, 10))
def test_tiles_of_powers_of_two(size, exponent):
    assert power_of_two(size) <= size < 2 * power_of_two(size)
    largest = 2**exponent
    tile = fitting_tile(size, largest)
    assert tile == power_of_two(tile) <= largest
    # It covers the size, or is as large as it may be; and half of it would not do.
    assert tile >= size or tile == largest
    assert tile == 1 or tile // 2 < size


def test_shared_arrays_start_on_multiples_of_16_bytes():
    assert shared_size(7) == 7
    assert shared_size(4, 7) == 11
    assert shared_size(5, 7) == 15
    assert shared_size(1, 1, 1) == 9


def test_a_grid_has_blocks_for_every_group_of_images():
    work = Work(source("k", "elementwise.cl", (1, 1, 1), {}), (), blocks=5, images_per_block=4)
    assert [work.grid(images) for images in (1, 4, 5)] == [(5, 1, 1), (5, 1, 1), (5, 1, 2)]


@given(geometries())
def test_a_plane_is_covered_by_its_tiles(geometry):
    for options in (*square_tiles(geometry, USUAL), *oblong_tiles(geometry, USUAL)):
        block = plane_block(options)
        down, across = plane_tiles(geometry, block)
        assert (down - 1) * block[1] < geometry.out_y <= down * block[1]
        assert (across - 1) * block[0] < geometry.out_x <= across * block[0]
        assert math.prod(block) <= 512


@pytest.mark.parametrize("rung", GPU_RUNGS, ids=lambda rung: rung.name)
@examples(10)
@given(geometry=geometries(), threads=st.sampled_from([1024, 64]), shared=st.sampled_from([48, 4]))
def test_candidates_fit_and_the_choice_is_one_of_them(rung, geometry, threads, shared):
    limits = replace(USUAL, threads=threads, shared_bytes=shared * 1024)
    candidates = list(rung.convolutions.candidates(geometry, limits))
    for options in candidates:
        assert all(type(value) is int for value in options.values())
    for options in candidates[:: max(1, len(candidates) // 50)]:
        assert rung.convolutions.build(geometry, options).misfit(limits) is None
        assert candidates.count(options) == 1
    try:
        assert rung.convolutions.choose(geometry, limits) in candidates
    except DoesNotFit:
        assert threads < 256 or shared < 48 or not candidates


def test_without_an_opinion_the_first_candidate_is_chosen():
    geometry = Geometry(3, 32, 32, 16, 5, 5, 1, 1, 2, 2, 32, 32, padded=1)
    many = Convolutions(lambda geometry, limits: iter([{"a": 1}, {"a": 2}]), direct.build)
    assert many.choose(geometry, USUAL) == {"a": 1}
    none = Convolutions(lambda geometry, limits: (), direct.build)
    with pytest.raises(DoesNotFit, match="no choice of its tiles"):
        none.choose(geometry, USUAL)


def test_candidates_are_real_choices():
    """More than one for every rung, and kernels that differ."""
    geometry = Geometry.of(tilewright.load("cifar10").stages[1])
    for rung in GPU_RUNGS:
        candidates = list(rung.convolutions.candidates(geometry, USUAL))
        sources = {
            tuple(work.source.defines for work in rung.convolutions.build(geometry, options).works)
            for options in candidates[:200]
        }
        assert len(sources) == len(candidates[:200]) > 10, rung.name


@given(geometries())
def test_rows_of_a_layer_waste_least(geometry):
    rows, columns = per_layer.tile(geometry.filters, geometry.positions)
    assert rows * columns <= 256
    assert columns == power_of_two(columns)
    wasted = tiles(geometry.filters, rows) * rows - geometry.filters
    assert all(
        wasted <= tiles(geometry.filters, other) * other - geometry.filters
        for other in range(1, 17)
    )


@pytest.mark.parametrize("rung", GPU_RUNGS, ids=lambda rung: rung.name)
@examples(25)  # choosing a tile takes a sixth of a second
@given(geometry=geometries())
def test_every_design_fits_or_says_that_it_does_not(rung, geometry):
    """Threads enough for every output, within the usual limits, and arguments that exist."""
    try:
        design = rung.convolutions.design(geometry, USUAL)
        for work in design.works:
            work.source.check(USUAL)
    except DoesNotFit as error:
        assert f"{rung.name.replace('-', '_')}_" in str(error)
        return
    known = {"x", "out", "weight", "bias", "images", *design.scratch}
    summing = [work for work in design.works if work.has_weights]
    for work in design.works:
        assert set(work.arguments) <= known
        assert 1 <= math.prod(work.source.block) <= USUAL_THREADS
        assert work.blocks < 2**31
        assert work.traffic.stores > 0
    products = sum(math.prod(loop.extent for loop in work.loops) for work in summing)
    assert products == geometry.outputs * geometry.taps
    # No kernel reads fewer values than there are, nor writes fewer outputs.
    assert sum(work.traffic.stores for work in summing) >= geometry.outputs
    written = {name for work in design.works for name in work.arguments}
    assert set(design.scratch) <= written
