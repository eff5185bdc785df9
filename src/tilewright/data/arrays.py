"""Arrays of `images` and, optionally, `labels`: a NumPy `.npz` archive, or a program's own.

`images` is (image, channel, y, x) or (image, y, x): uint8 pixels, or floating-point values that
enter the network as they are.
"""

from __future__ import annotations

import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from tilewright.data.dataset import ALL, Dataset, Wanted, check_shape, check_size
from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

CHUNK = 1 << 20
PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# What the zip reader raises for archives that are damaged, encrypted or of another kind.
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError,
          UnicodeDecodeError)  # fmt: skip
LARGEST_LABEL = 2**31 - 1
# What a program may hand over: images, or images and labels.
Arrays = NDArray[Any] | tuple[NDArray[Any], NDArray[Any] | None]
GIVEN = "the given arrays"
LARGEST_HEADER = 10_000  # NumPy's own limit, which it looks at when it has read the header


def read(path: Path, wanted: Wanted = ALL) -> Dataset:
    with _opened(path) as archive:
        images = _Array.find(archive, "images", path)
        labelled = "labels.npy" in archive.namelist()
        labels = _Array.find(archive, "labels", path) if labelled else None
        # All that the headers can tell is checked before anything is unpacked.
        _check(images, labels, path, wanted)
        start, count = wanted.start, wanted.count(images.shape[0])
        values = values_of(images.read(archive, start, count, path), path)
        classes = (
            None if labels is None else labels_of(labels.read(archive, start, count, path), path)
        )
    return Dataset(path.stem, values, classes, str(path))


def count(path: Path) -> int:
    """The images in an archive, as its header has it."""
    with _opened(path) as archive:
        return _Array.find(archive, "images", path).shape[0]


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """An archive that has images; what is wrong with it is an error that names it."""
    check_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            if "images.npy" not in archive.namelist():
                raise TilewrightError(f"{path}: no array named 'images'")
            yield archive
    except DAMAGE as error:
        raise TilewrightError(f"{path}: damaged .npz file: {error}") from error
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def given(arrays: Arrays, wanted: Wanted = ALL) -> Dataset:
    """A data set of a program's own arrays, or of another library's that NumPy can read."""
    images, labels = arrays if isinstance(arrays, tuple) and len(arrays) == 2 else (arrays, None)
    found = _handed("images", images)
    classes = None if labels is None else _handed("labels", labels)
    if found.dtype.kind == "f" and found.dtype != np.float32:
        # Are 0.0 to 255.0 pixels or values? A guess would be silently wrong.
        raise TilewrightError(
            f"{GIVEN}: 'images' is {found.dtype}; it must be uint8 (pixels) or float32 (values)"
        )
    _check(found, classes, GIVEN, wanted)
    count = wanted.count(len(found))
    return Dataset(
        "arrays",
        values_of(found[:count], GIVEN),
        None if classes is None else labels_of(classes[:count], GIVEN),
        GIVEN,
    )


def _handed(name: str, array: object) -> NDArray[Any]:
    if not hasattr(array, "__array__"):
        raise TilewrightError(f"{GIVEN}: {name!r} is {type(array).__name__}, not an array")
    found = np.asarray(array)
    if not found.size:
        raise TilewrightError(f"{GIVEN}: {name!r} has shape {found.shape}: it holds nothing")
    return found


@dataclass(frozen=True)
class _Array:
    """An array in an archive, as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int

    @classmethod
    def find(cls, archive: zipfile.ZipFile, name: str, path: Path) -> _Array:
        stored = archive.getinfo(f"{name}.npy")
        if stored.compress_type not in PACKINGS:  # others unpack more than they are asked for
            raise TilewrightError(f"{path}: {name!r} is packed in a way that NumPy does not write")
        with archive.open(f"{name}.npy") as file:
            try:
                version = npy.read_magic(file)
                header = _header(file, {(1, 0): 2, (2, 0): 4}[version])
                read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
                shape, fortran, dtype = read_header[version](io.BytesIO(header))
            except DAMAGE:
                raise
            except Exception as error:  # a Python literal: damage raises nearly anything
                raise TilewrightError(f"{path}: array {name!r} has a damaged header") from error
        if dtype.kind not in "iuf" or fortran or not shape:
            order = " in Fortran order" if fortran else ""
            raise TilewrightError(f"{path}: cannot use {name!r} of type {dtype}{order}")
        if len(shape) > 4 or any(type(size) is not int for size in shape):
            raise TilewrightError(f"{path}: {name!r} has shape {shape!r:.60}")
        if any(size <= 0 for size in shape):
            raise TilewrightError(f"{path}: {name!r} has shape {shape}: it holds nothing")
        start, expected = npy.MAGIC_LEN + len(header), math.prod(shape) * dtype.itemsize
        if stored.file_size != start + expected:
            raise TilewrightError(
                f"{path}: {name!r} does not hold the {expected} bytes of its shape"
            )
        return cls(name, shape, dtype, start)

    def read(self, archive: zipfile.ZipFile, start: int, count: int, path: Path) -> NDArray[Any]:
        """`count` along its first axis from the `start`-th on, read piece by piece."""
        shape = (count, *self.shape[1:])
        skipped = start * math.prod(self.shape[1:]) * self.dtype.itemsize
        expected = math.prod(shape) * self.dtype.itemsize
        content = bytearray()
        with archive.open(f"{self.name}.npy") as file:
            file.seek(self.start + skipped)
            while piece := file.read(min(CHUNK, expected - len(content))):
                content += piece
            if start + count == self.shape[0]:
                file.read(1)  # at its very end the archive's checksum is compared
        if len(content) < expected:
            raise TilewrightError(f"{path}: {self.name!r} ends after {len(content)} bytes")
        return np.frombuffer(content, self.dtype).reshape(shape)


def _header(file: IO[bytes], length_bytes: int) -> bytes:
    """An array's header with its length before it, which is looked at first."""
    length = file.read(length_bytes)
    if int.from_bytes(length, "little") > LARGEST_HEADER:
        raise ValueError
    return length + file.read(int.from_bytes(length, "little"))


def _check(
    images: _Array | NDArray[Any],
    labels: _Array | NDArray[Any] | None,
    path: Path | str,
    wanted: Wanted,
) -> None:
    if len(images.shape) not in (3, 4):
        raise TilewrightError(
            f"{path}: 'images' has {len(images.shape)} dimensions; it needs image, channel, y, x"
        )
    if images.dtype != np.uint8 and images.dtype.kind != "f":
        raise TilewrightError(f"{path}: 'images' is {images.dtype}; it must be uint8 or float")
    stored, *size = images.shape
    shape = (1, *size) if len(size) == 2 else tuple(size)
    check_shape(shape, wanted.shape, str(path))
    item = images.dtype.itemsize + (0 if images.dtype == np.uint8 else 4)  # float32 beside them
    check_size(wanted.count(stored), shape, item, str(path))
    if labels is not None and (labels.shape != (stored,) or labels.dtype.kind not in "iu"):
        raise TilewrightError(
            f"{path}: 'labels' is {labels.dtype} of shape {labels.shape}; "
            f"{stored} images need {stored} whole numbers"
        )


def values_of(images: NDArray[Any], path: Path | str) -> NDArray[Any]:
    """Pixels as they are, or values in float32, all of them finite; one channel if none is said."""
    if images.ndim == 3:
        images = images[:, None]
    if images.dtype == np.uint8:
        return images
    with np.errstate(over="ignore"):
        values = images.astype(np.float32)
    if not np.isfinite(values).all():
        where = np.argwhere(~np.isfinite(values))[0]
        raise TilewrightError(f"{path}: image {where[0]} holds a value that is not finite")
    return values


def labels_of(labels: NDArray[Any], path: Path | str) -> NDArray[np.int64]:
    """Labels that could be classes."""
    wrong = np.flatnonzero((labels < 0) | (labels > LARGEST_LABEL))
    if wrong.size:
        raise TilewrightError(f"{path}: label {labels[wrong[0]]} of image {wrong[0]} is no class")
    return labels.astype(np.int64)
