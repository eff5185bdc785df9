"""Pixels into values on the host."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.model.layers import Pixels
from tilewright.model.pixels import normalise


def test_every_pixel_becomes_the_nearest_float32_of_its_value():
    layer = Pixels((2, 16, 16), scale=1 / 255, shift=-0.5)
    pixels = np.arange(512).reshape(1, 2, 16, 16).astype(np.uint8)
    values = np.full(pixels.shape, np.nan, np.float32)
    normalise(layer)(pixels, values)
    assert np.array_equal(values, (pixels * layer.scale + layer.shift).astype(np.float32))


def test_pytorch_is_sent_scale_and_shift_once(monkeypatch):
    """Sent with every batch, the host would wait each time, and a GPU for the host."""
    torch = pytest.importorskip("torch")
    made, new = [], torch.Tensor.new_tensor

    def counted(tensor, *given):
        made.append(given)
        return new(tensor, *given)

    monkeypatch.setattr(torch.Tensor, "new_tensor", counted)
    layer = Pixels((2, 1, 1), scale=(0.5, 2.0), shift=(1.0, -1.0))
    enter = layer.torch()
    for value in (2, 4):
        found = enter(torch.full((3, 2, 1, 1), value, dtype=torch.uint8))
        assert found[:, :, 0, 0].tolist() == [[0.5 * value + 1, 2.0 * value - 1]] * 3
    assert len(made) == 2
