"""A folder of pictures: one subfolder a class, in alphabetical order, or just pictures.

Pictures are converted to the network's channels (1: grey, 3: red, green, blue) and resized to
its input size.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tilewright.data.dataset import Dataset, Wanted, check_size
from tilewright.errors import TilewrightError
from tilewright.files import check_file
from tilewright.model.layers import Shape

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".ppm", ".pgm"}
# Pillow goes by content, and hands PostScript to another program, whatever the file is called.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM")
MODES = {1: "L", 3: "RGB"}
# Where it is, and its class where there are any.
Picture = tuple[Path, int | None]
# What a Mac puts beside the pictures in an archive.
NO_CLASSES = {"__MACOSX"}


def is_folder(folder: Path) -> bool:
    return bool(_pictures(folder) or _classes(folder))


def first_shape(folder: Path) -> Shape:
    """The shape of the first picture, in colour."""
    (path, _), *_ = labelled(folder)
    return shape_of(path, path)


def shape_of(file: Path | IO[bytes], name: str | Path) -> Shape:
    """The shape of a picture, in colour."""
    return 3, *_open(file, name, "RGB", None).shape[:2]


def read(folder: Path, shape: Shape, images: int | None = None) -> Dataset:
    """The pictures below `folder`, or the first `images`, at `shape` (channels, height, width)."""
    found = labelled(folder)
    count = Wanted(shape, images).count(len(found))
    return read_some(folder, found[:count], described(folder, found), Wanted(shape))


def described(folder: Path, found: Sequence[Picture]) -> str:
    """What a folder holds, for people."""
    classes = len({label for _, label in found if label is not None})
    kind = f"{classes} classes" if classes else "no classes"
    return f"{folder} ({len(found)} pictures, {kind})"


def read_some(folder: Path, found: Sequence[Picture], source: str, wanted: Wanted) -> Dataset:
    """These pictures of a folder, at the shape wanted."""
    assert wanted.shape is not None
    check_channels(wanted.shape, str(folder))
    check_size(len(found), wanted.shape, 1, str(folder))
    pixels = np.empty((len(found), *wanted.shape), np.uint8)
    for (path, _), target in zip(found, pixels, strict=True):
        target[:] = decoded(path, path, wanted.shape)
    labels = np.array([-1 if label is None else label for _, label in found], np.int64)
    names = tuple(each.name for each in _classes(folder))
    return Dataset(folder.name, pixels, None if (labels < 0).any() else labels, source, names)


def check_channels(shape: Shape, source: str) -> None:
    if shape[0] not in MODES:
        raise TilewrightError(f"{source}: pictures have 1 or 3 channels, the network {shape[0]}")


def labelled(folder: Path) -> list[Picture]:
    """All pictures with their classes, or without."""
    classes = _classes(folder)
    if not classes:
        return [(path, None) for path in _pictures(folder)]
    # A class without pictures would shift the numbers of all behind it.
    empty = [sub for sub in classes if not _pictures(sub)]
    if empty or _pictures(folder):
        what = f"{empty[0].name} holds no pictures" if empty else "there are pictures beside"
        raise TilewrightError(f"{folder}: subfolders are classes, but {what}")
    return [(path, label) for label, sub in enumerate(classes) for path in _pictures(sub)]


def _classes(folder: Path) -> list[Path]:
    """All subfolders, if any of them holds pictures."""
    found = [
        sub
        for sub in sorted(folder.iterdir())
        if not _hidden(sub) and sub.name not in NO_CLASSES and sub.is_dir()
    ]
    return found if any(_pictures(sub) for sub in found) else []


def _pictures(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.iterdir() if path.suffix.lower() in ENDINGS and not _hidden(path)
    )


def _hidden(path: Path) -> bool:
    """Not for people to see: a Mac's `._a.png` beside `a.png` is no picture."""
    return path.name.startswith(".")


def decoded(file: Path | IO[bytes], name: str | Path, shape: Shape) -> NDArray[np.uint8]:
    """The pixels of a picture in a file, or in memory, at this shape."""
    channels, height, width = shape
    pixels = _open(file, name, MODES[channels], (width, height))
    return pixels.reshape(height, width, channels).transpose(2, 0, 1)


def _open(
    file: Path | IO[bytes], name: str | Path, mode: str, size: tuple[int, int] | None
) -> NDArray[np.uint8]:
    """The pixels of a picture, (y, x, colour); without a `size`, as large as it is."""
    from PIL import Image

    if isinstance(file, Path):
        check_file(file)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Pillow only warns of a picture that claims a monstrous size; here that is an error.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as picture:
                converted = _upright(picture, name).convert(mode)
                if size is not None and converted.size != size:
                    converted = converted.resize(size, Image.Resampling.BILINEAR)
                return np.asarray(converted)
    except TilewrightError:
        raise
    except Exception as error:  # damage makes Pillow raise nearly anything
        raise TilewrightError(f"{name}: not a readable picture: {error}") from error


def _upright(picture: Image.Image, name: str | Path) -> Image.Image:
    """The first frame in 8 bits, turned as its camera says, with black where it is transparent."""
    from PIL import Image, ImageOps

    if picture.mode == "F":
        raise TilewrightError(f"{name}: holds floating-point values: store them in an .npz")
    turned = ImageOps.exif_transpose(picture)
    if turned.mode.startswith("I"):
        # 16 bits of grey: the high byte, which is what Pillow itself takes of 16-bit colour.
        return Image.fromarray((np.asarray(turned) >> 8).astype(np.uint8))
    if "A" not in turned.getbands() and "transparency" not in turned.info:
        return turned
    black = Image.new("RGBA", turned.size, (0, 0, 0, 255))
    return Image.alpha_composite(black, turned.convert("RGBA"))
