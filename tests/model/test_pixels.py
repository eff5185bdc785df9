"""Pixels into values on the host."""

from __future__ import annotations

import numpy as np

from tilewright.model.layers import Pixels
from tilewright.model.pixels import normalise


def test_every_pixel_becomes_the_nearest_float32_of_its_value():
    layer = Pixels((2, 16, 16), scale=1 / 255, shift=-0.5)
    pixels = np.arange(512).reshape(1, 2, 16, 16).astype(np.uint8)
    values = np.full(pixels.shape, np.nan, np.float32)
    normalise(layer)(pixels, values)
    assert np.array_equal(values, (pixels * layer.scale + layer.shift).astype(np.float32))
