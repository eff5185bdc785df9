"""Pixels into a network's values on the host, where no device does it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Pixels


def normalise(layer: Pixels) -> Callable[[NDArray[np.uint8], NDArray[np.float32]], None]:
    """Reads a batch of pixels and fills another with values, by a table of all 256."""
    table = (np.arange(256) * layer.scale + layer.shift).astype(np.float32)

    def run(x: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        np.take(table, x, out=out, mode="clip")  # the default mode would go through a copy

    return run
