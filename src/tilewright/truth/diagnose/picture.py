"""A small picture of one output plane: which of its outputs are right and which are not."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
ROWS, COLUMNS = 32, 64
RIGHT, WRONG, UNWRITTEN = ".", "#", "o"


def picture(wrong: Mask, unwritten: Mask) -> tuple[str, ...]:
    """Of a batch: the first image and filter with the most wrong outputs.

    A larger plane is scaled down; a character then stands for several outputs, and is that of the
    worst of them.
    """
    if wrong.ndim == 4:
        counts = np.count_nonzero(wrong, axis=(2, 3))
        image, row = np.unravel_index(int(counts.argmax()), counts.shape)
        planes = wrong[image, row], unwritten[image, row]
        title = f"image {image}, filter {row}"
    else:
        counts = np.count_nonzero(wrong.reshape(len(wrong), -1), axis=1)
        image = counts.argmax()
        planes = wrong[image].reshape(1, -1), unwritten[image].reshape(1, -1)
        title = f"image {image}"
    height, width = planes[0].shape
    step_y, step_x = -(-height // ROWS), -(-width // COLUMNS)
    bad, empty = (_scaled(plane, step_y, step_x) for plane in planes)
    lines = [
        "".join(
            UNWRITTEN if none else WRONG if wrong_here else RIGHT
            for wrong_here, none in zip(*line, strict=True)
        )
        for line in zip(bad, empty, strict=True)
    ]
    margin = len(str(height - 1)) + 2
    signs = [f"{RIGHT} right", f"{WRONG} wrong"] + [f"{UNWRITTEN} never written"] * bool(
        empty.any()
    )
    scale = "" if step_y == step_x == 1 else f"; a character is {step_y} x {step_x} outputs"
    axis = f"{'':{margin}}x = 0" + (f" to {width - 1}" if width > 1 else "")
    return (
        f"{title}, {height} x {width} outputs ({', '.join(signs)}{scale}):",
        axis,
        *(f"{index * step_y:>{margin - 1}} {line}" for index, line in enumerate(lines)),
    )


def _scaled(plane: Mask, step_y: int, step_x: int) -> Mask:
    height, width = plane.shape
    whole = np.pad(plane, ((0, -height % step_y), (0, -width % step_x)))
    cells = whole.reshape(whole.shape[0] // step_y, step_y, -1, step_x)
    return np.asarray(cells.any((1, 3)))
