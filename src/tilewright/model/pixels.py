"""Pixels into a network's values on the host, where no device does it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tilewright.model.layers import Pixels


def normalise(layer: Pixels) -> Callable[[NDArray[np.uint8], NDArray[np.float32]], None]:
    """Reads a batch of pixels and fills another with values, by a table of all 256."""
    tables = np.outer(layer.scales, np.arange(256)) + np.reshape(layer.shifts, (-1, 1))
    tables = tables.astype(np.float32)

    def run(x: NDArray[np.uint8], out: NDArray[np.float32]) -> None:
        # The default mode would go through a copy.
        if not layer.specials:
            np.take(tables[0], x, out=out, mode="clip")
            return
        for image, result in zip(x, out, strict=True):
            for table, channel, values in zip(tables, image, result, strict=True):
                np.take(table, channel, out=values, mode="clip")

    return run
