"""A NumPy `.npz` archive: `images` and, optionally, `labels`.

`images` is (image, channel, y, x) or (image, y, x): uint8 pixels, or floating-point values that
enter the network as they are.
"""

from __future__ import annotations

import lzma
import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

CHUNK = 1 << 20
# What the zip reader raises for archives that are damaged, encrypted or of another kind.
DAMAGE = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError,
          RuntimeError, UnicodeDecodeError)  # fmt: skip
LARGEST_LABEL = 2**31 - 1


def read(path: Path) -> Dataset:
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if "images.npy" not in names:
                raise TilewrightError(f"{path}: no array named 'images'")
            images = _array(archive, "images", path)
            labels = _array(archive, "labels", path) if "labels.npy" in names else None
    except DAMAGE as error:
        raise TilewrightError(f"{path}: damaged .npz file: {error}") from error
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    return Dataset(path.stem, _images(images, path), _labels(labels, len(images), path), str(path))


def _array(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    """One array, read piece by piece: memory follows the content, not the header's claim."""
    with archive.open(f"{name}.npy") as file:
        try:
            version = npy.read_magic(file)
            read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
            shape, fortran, dtype = read_header[version](file)
        except Exception as error:  # the header is a Python literal: damage raises nearly anything
            raise TilewrightError(f"{path}: array {name!r} has a damaged header") from error
        if dtype.kind not in "iuf" or fortran or not shape:
            order = " in Fortran order" if fortran else ""
            raise TilewrightError(f"{path}: cannot use {name!r} of type {dtype}{order}")
        if len(shape) > 4 or any(type(size) is not int for size in shape):
            raise TilewrightError(f"{path}: {name!r} has shape {shape!r:.60}")
        if any(size <= 0 for size in shape):
            raise TilewrightError(f"{path}: {name!r} has shape {shape}: it holds nothing")
        expected = math.prod(shape) * dtype.itemsize
        content = bytearray()
        while len(content) <= expected and (piece := file.read(CHUNK)):
            content += piece
    if len(content) != expected:
        raise TilewrightError(f"{path}: {name!r} does not hold the {expected} bytes of its shape")
    return np.frombuffer(content, dtype).reshape(shape)


def _images(images: NDArray[Any], path: Path) -> NDArray[Any]:
    if images.ndim == 3:
        images = images[:, None]
    if images.ndim != 4:
        raise TilewrightError(
            f"{path}: 'images' has {images.ndim} dimensions; it needs image, channel, y, x"
        )
    if images.dtype == np.uint8:
        return images
    if images.dtype.kind != "f":
        raise TilewrightError(f"{path}: 'images' is {images.dtype}; it must be uint8 or float")
    with np.errstate(over="ignore"):
        values = images.astype(np.float32)
    if not np.isfinite(values).all():
        where = np.argwhere(~np.isfinite(values))[0]
        raise TilewrightError(f"{path}: image {where[0]} holds a value that is not finite")
    return values


def _labels(labels: NDArray[Any] | None, images: int, path: Path) -> NDArray[np.int64] | None:
    if labels is None:
        return None
    if labels.shape != (images,) or labels.dtype.kind not in "iu":
        raise TilewrightError(
            f"{path}: 'labels' is {labels.dtype} of shape {labels.shape}; "
            f"{images} images need {images} whole numbers"
        )
    wrong = np.flatnonzero((labels < 0) | (labels > LARGEST_LABEL))
    if wrong.size:
        raise TilewrightError(f"{path}: label {labels[wrong[0]]} of image {wrong[0]} is no class")
    return labels.astype(np.int64)
