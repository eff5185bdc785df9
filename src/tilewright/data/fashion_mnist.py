"""Fashion-MNIST and whatever else comes as a pair of IDX files, gzipped or plain.

IDX: two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as
a big-endian 32-bit number, then the bytes. Images have three dimensions, labels one.
"""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tilewright.data.dataset import (
    ALL,
    Dataset,
    Wanted,
    check_shape,
    check_size,
    checked_labels,
)
from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

CLASSES = 10
# Of Fashion-MNIST; other pairs of IDX files have others.
NAMES = (
    *("T-shirt/top", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
)
TEST = "t10k"
TRAINING = "train"
PARTS = (TEST, TRAINING)
# Debian's package `dataset-fashion-mnist` puts the files here.
DEBIAN_FOLDER = Path("/usr/share/datasets/fashion-mnist")
IMAGES = "-images-idx3-ubyte"
LABELS = "-labels-idx1-ubyte"
CHUNK = 1 << 20


def find(folder: Path, part: str) -> Path | None:
    """The images file of a part (`t10k` or `train`) in `folder`, plain or gzipped."""
    for name in (f"{part}{IMAGES}", f"{part}{IMAGES}.gz"):
        if (folder / name).is_file():
            return folder / name
    return None


def is_images_file(path: Path) -> bool:
    return path.name.removesuffix(".gz").endswith(IMAGES)


def images_of(folder: Path) -> Path | None:
    """The test part if it is there, else the training part."""
    return find(folder, TEST) or find(folder, TRAINING)


def read_folder(folder: Path, wanted: Wanted = ALL) -> Dataset:
    images = images_of(folder)
    if images is None:
        raise TilewrightError(f"{folder}: no file named *{IMAGES}[.gz]")
    return read(images, wanted)


def read(path: Path, wanted: Wanted = ALL) -> Dataset:
    """An images file and the labels file beside it that goes with it.

    Of the shape wanted only the channel matters: these pictures are resized.
    """
    part = path.name.removesuffix(".gz").removesuffix(IMAGES)
    beside = [path.with_name(f"{part}{LABELS}{end}") for end in ("", ".gz")]
    found = next((candidate for candidate in beside if candidate.is_file()), None)
    if found is None:
        raise TilewrightError(f"{beside[0]}[.gz] is missing: the labels of {path.name}")
    with _open(path, 3) as images, _open(found, 1) as labels:
        (stored, *size), (labelled,) = images.shape, labels.shape
        if stored != labelled:
            raise TilewrightError(
                f"{path} has {stored} images, but {found.name} has {labelled} labels"
            )
        if math.prod(images.shape) == 0:
            raise TilewrightError(f"{path}: holds no images")
        if wanted.shape is not None and wanted.shape[0] != 1:
            check_shape((1, *size), wanted.shape, str(path))
        start, many = wanted.start, wanted.count(stored)
        check_size(many, (1, *size), 1, str(path))
        pixels, classes = images.read(start, many), labels.read(start, many)
    checked = checked_labels(classes, CLASSES, str(found))
    return Dataset("fashion-mnist", pixels[:, None], checked, str(path))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes with that many dimensions."""
    with _open(path, dimensions) as file:
        return file.read(0, file.shape[0])


def count(path: Path) -> int:
    """The images in a file, as its header has it."""
    with _open(path, 3) as file:
        return file.shape[0]


@dataclass(frozen=True)
class _Idx:
    """An open IDX file whose header was read."""

    path: Path
    file: BinaryIO | gzip.GzipFile
    shape: tuple[int, ...]

    def read(self, start: int, count: int) -> NDArray[np.uint8]:
        """`count` of what it holds from the `start`-th on; behind the last nothing may follow."""
        shape = (count, *self.shape[1:])
        expected = math.prod(shape)
        # Read piece by piece: memory follows what is really there, not what the header claims.
        content = bytearray()
        with _damage_named(self.path):
            # A packed file is unpacked up to there: the format has no other way.
            self.file.seek(start * math.prod(self.shape[1:]), os.SEEK_CUR)
            while piece := self.file.read(min(CHUNK, expected - len(content))):
                content += piece
            more = start + count == self.shape[0] and self.file.read(1)
        if len(content) < expected or more:
            found = "more" if more else f"only {len(content)}"
            raise TilewrightError(
                f"{self.path}: header says {' x '.join(map(str, shape))} = {expected} bytes, "
                f"but {found} follow"
            )
        return np.frombuffer(content, np.uint8).reshape(shape)


@contextmanager
def _open(path: Path, dimensions: int) -> Iterator[_Idx]:
    check_file(path)
    with ExitStack() as opened:
        with _damage_named(path):
            file: BinaryIO | gzip.GzipFile = opened.enter_context(path.open("rb"))
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if packed:
                file = opened.enter_context(gzip.open(file))
            shape = _shape(file, path, dimensions)
        yield _Idx(path, file, shape)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TilewrightError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def _shape(file: BinaryIO | gzip.GzipFile, path: Path, dimensions: int) -> tuple[int, ...]:
    """What the header says."""
    header = file.read(4 + 4 * dimensions)
    if header[:4] != bytes([0, 0, 8, dimensions]):
        raise TilewrightError(
            f"{path}: magic number {header[:4].hex(' ') or 'missing'}, but an IDX file of bytes "
            f"in {dimensions} dimension{'s' if dimensions > 1 else ''} "
            f"starts 00 00 08 {dimensions:02x}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise TilewrightError(f"{path}: ends inside its header")
    return tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
