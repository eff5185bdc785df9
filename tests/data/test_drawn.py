"""Pictures that are drawn: always there, always the same, and no claim of correctness."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.data import catalogue, drawn
from tilewright.errors import TilewrightError


@pytest.fixture
def nothing_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "home", lambda: tmp_path)


def test_they_are_the_same_every_time_and_differ_from_one_another():
    one, other = (drawn.pictures((3, 32, 32), 150) for _ in range(2))
    np.testing.assert_array_equal(one.images, other.images)
    assert one.images.shape == (150, 3, 32, 32) and one.images.dtype == np.uint8
    assert len(np.unique(one.images, axis=0)) == drawn.DIFFERENT
    assert one.labels is None and "correctness is not measured" in one.source


def test_fewer_are_the_first_of_more():
    few, many = drawn.pictures((1, 9, 7), 3), drawn.pictures((1, 9, 7), 10)
    np.testing.assert_array_equal(few.images, many.images[:3])


def test_every_network_has_something_to_run_over(nothing_fetched):
    assert catalogue.default_for((1, 70, 70)) == catalogue.SAMPLE
    for shape in ((3, 32, 32), (3, 224, 224), (2, 5, 5)):
        name = catalogue.default_for(shape)
        assert catalogue.open_data(name, shape, 2).shape == shape


def test_what_is_larger_than_memory_is_refused():
    with pytest.raises(TilewrightError):
        drawn.pictures((3, 100_000, 100_000), 1000)


def test_nothing_is_trained_on_them(nothing_fetched):
    with pytest.raises(TilewrightError, match="data fetch cifar10"):
        catalogue.open_parts(None, (3, 32, 32))
