"""Pictures drawn by code, so that every network runs out of the box.

Discs, boxes and stripes on gradients, as many channels and as large as asked for, always the same.
They are no data set: they have no labels, and nothing is said of how many answers are right.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tilewright.data.dataset import Dataset, check_size
from tilewright.model.layers import Shape

NAME = "drawn"
SEED = 1
DIFFERENT = 100  # pictures; more images are these again
COUNT = 1000  # images, if no number is asked for
SOURCE = "drawn pictures (no labels: correctness is not measured)"


def pictures(shape: Shape, images: int | None, start: int = 0) -> Dataset:
    """So many images of a shape, from the `start`-th on."""
    count = COUNT if images is None else images
    check_size(count, shape, 1, SOURCE)
    generator = np.random.default_rng(SEED)
    made = [_picture(shape, generator) for _ in range(min(start + count, DIFFERENT))]
    return Dataset(NAME, np.stack(made)[np.arange(start, start + count) % len(made)], None, SOURCE)


def _picture(shape: Shape, generator: np.random.Generator) -> NDArray[np.uint8]:
    """A sky that grows lighter, and two things in front of it."""
    channels, height, width = shape
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    low, high = generator.uniform(0, 1, (2, channels, 1, 1))
    picture = low + (high - low) * (y if generator.integers(2) else x)
    for _ in range(2):
        colour = generator.uniform(0, 1, (channels, 1, 1))
        picture = np.where(_thing(x, y, generator), colour, picture)
    return np.asarray(np.rint(255 * picture), np.uint8)


def _thing(
    x: NDArray[np.float64], y: NDArray[np.float64], generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Where a disc, a box or some stripes are."""
    at_x, at_y = generator.uniform(0.25, 0.75, 2)
    wide, high = generator.uniform(0.1, 0.35, 2)
    kind = generator.integers(3)
    if kind == 0:
        inside = ((x - at_x) / wide) ** 2 + ((y - at_y) / high) ** 2 <= 1
    else:
        inside = (abs(x - at_x) <= wide) & (abs(y - at_y) <= high)
    if kind == 2:
        inside &= np.floor(x / 0.08) % 2 == 0
    return np.asarray(inside, np.bool_)
