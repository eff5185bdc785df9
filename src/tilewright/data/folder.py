"""A folder of pictures: one subfolder a class, in alphabetical order, or just pictures.

Pictures are converted to the network's channels (1: grey, 3: red, green, blue) and resized to
its input size.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.files import check_file
from tilewright.model.layers import Shape

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm"}
MODES = {1: "L", 3: "RGB"}
# Pillow would clip these to 0..255 without a word.
DEEP = {"I", "F", "I;16", "I;16B", "I;16L", "I;16N"}


def is_folder(folder: Path) -> bool:
    return bool(_pictures(folder) or _classes(folder))


def first_shape(folder: Path) -> Shape:
    """The shape of the first picture, in colour."""
    path = (_pictures(folder) or _pictures(_classes(folder)[0]))[0]
    return 3, *_open(path, "RGB", None).shape[:2]


def read(folder: Path, shape: Shape) -> Dataset:
    """All pictures below `folder` at `shape` (channels, height, width)."""
    if shape[0] not in MODES:
        raise TilewrightError(f"{folder}: pictures have 1 or 3 channels, the network {shape[0]}")
    classes = _classes(folder)
    if classes:
        # A class without pictures would shift the numbers of all behind it.
        empty = [sub for sub in classes if not _pictures(sub)]
        if empty or _pictures(folder):
            what = f"{empty[0].name} holds no pictures" if empty else "there are pictures beside"
            raise TilewrightError(f"{folder}: subfolders are classes, but {what}")
        found = [(path, label) for label, c in enumerate(classes) for path in _pictures(c)]
    else:
        found = [(path, -1) for path in _pictures(folder)]
    images = np.stack([_read(path, shape) for path, _ in found])
    labels = np.array([label for _, label in found]) if classes else None
    kind = f"{len(classes)} classes" if classes else "no classes"
    return Dataset(folder.name, images, labels, f"{folder} ({len(found)} pictures, {kind})")


def _classes(folder: Path) -> list[Path]:
    """All subfolders, if any of them holds pictures."""
    found = [sub for sub in sorted(folder.iterdir()) if sub.is_dir() and sub.name[0] != "."]
    return found if any(_pictures(sub) for sub in found) else []


def _pictures(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in ENDINGS)


def _read(path: Path, shape: Shape) -> NDArray[np.uint8]:
    channels, height, width = shape
    pixels = _open(path, MODES[channels], (width, height))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def _open(path: Path, mode: str, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """The pixels of a picture, (y, x, colour); without a `size`, as large as it is."""
    from PIL import Image

    check_file(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Pillow only warns of a picture that claims a monstrous size; here that is an error.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                if picture.mode in DEEP:
                    raise TilewrightError(
                        f"{path}: more than 8 bits a pixel ({picture.mode}): convert it first"
                    )
                converted = picture.convert(mode)
                if size is not None and converted.size != size:
                    converted = converted.resize(size, Image.Resampling.BILINEAR)
                return np.asarray(converted)
    except TilewrightError:
        raise
    except Exception as error:  # damage makes Pillow raise nearly anything
        raise TilewrightError(f"{path}: not a readable picture: {error}") from error
