from __future__ import annotations

import numpy as np
import pytest

from tilewright.data.dataset import Dataset, Wanted
from tilewright.errors import TilewrightError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 1, 28, 28), np.uint8)
SET = Dataset("set", PIXELS, np.array([1, 2, 3]), "somewhere")


def test_the_first_images_keep_their_labels():
    assert SET.first(2).labels.tolist() == [1, 2]
    assert SET.first(None) is SET


@pytest.mark.parametrize("count", [0, 4, -1])
def test_no_more_images_than_there_are(count):
    with pytest.raises(TilewrightError, match="somewhere has 3 images"):
        SET.first(count)


def test_resizing_is_bilinear_and_keeps_bytes():
    big = SET.resized(70, 70)
    assert big.images.shape == (3, 1, 70, 70)
    assert big.images.dtype == np.uint8
    assert "28x28 resized to 70x70" in big.source
    # Against the definition: output pixel centres mapped onto input pixel centres.
    place = np.clip((np.arange(70) + 0.5) * 28 / 70 - 0.5, 0, 27)
    low = np.minimum(place.astype(int), 26)
    part = place - low
    matrix = np.zeros((70, 28))
    matrix[np.arange(70), low] = 1 - part
    matrix[np.arange(70), low + 1] += part
    expected = matrix @ PIXELS[1, 0] @ matrix.T
    assert np.abs(big.images[1, 0] - expected).max() < 1.01  # rounded once along each axis


def test_more_than_is_kept_at_once_is_not_resized_to():
    with pytest.raises(TilewrightError, match="take fewer with --images"):
        SET.resized(10**6, 10**6)


@pytest.mark.parametrize("images", [0, -1])
def test_nobody_wants_less_than_one_image(images):
    with pytest.raises(TilewrightError, match="at least one"):
        Wanted(images=images)
    assert [Wanted(images=n).count(3) for n in (1, 3, 4)] == [1, 3, 3]
