"""A folder of pictures: one subfolder a class, in alphabetical order, or just pictures.

Pictures are converted to the network's channels (1: grey, 3: red, green, blue) and resized to
its input size.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np

from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.model.layers import Shape

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff"}
MODES = {1: "L", 3: "RGB"}


def is_folder(folder: Path) -> bool:
    return bool(_pictures(folder) or _classes(folder))


def first_shape(folder: Path) -> Shape:
    """The shape of the first picture, in colour."""
    from PIL import Image

    path = (_pictures(folder) or _pictures(_classes(folder)[0]))[0]
    with Image.open(path) as picture:
        return 3, picture.height, picture.width


def read(folder: Path, shape: Shape) -> Dataset:
    """All pictures below `folder` at `shape` (channels, height, width)."""
    if shape[0] not in MODES:
        raise TilewrightError(f"{folder}: pictures have 1 or 3 channels, the network {shape[0]}")
    classes = _classes(folder)
    if classes:
        found = [(path, label) for label, c in enumerate(classes) for path in _pictures(c)]
    else:
        found = [(path, -1) for path in _pictures(folder)]
    images = np.stack([_read(path, shape) for path, _ in found])
    labels = np.array([label for _, label in found]) if classes else None
    kind = f"{len(classes)} classes" if classes else "no classes"
    return Dataset(folder.name, images, labels, f"{folder} ({len(found)} pictures, {kind})")


def _classes(folder: Path) -> list[Path]:
    """The subfolders that hold pictures."""
    return [sub for sub in sorted(folder.iterdir()) if sub.is_dir() and _pictures(sub)]


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def _read(path: Path, shape: Shape) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    from PIL import Image

    channels, height, width = shape
    try:
        with warnings.catch_warnings():
            # Pillow only warns of a picture that claims a monstrous size; here that is an error.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                converted = picture.convert(MODES[channels])
                if converted.size != (width, height):
                    converted = converted.resize((width, height), Image.Resampling.BILINEAR)
                pixels = np.asarray(converted)
    except (OSError, SyntaxError, ValueError, Warning, Image.DecompressionBombError) as error:
        # Pillow raises SyntaxError and ValueError, too, for files that are damaged.
        raise TilewrightError(f"{path}: not a readable picture: {error}") from error
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)
