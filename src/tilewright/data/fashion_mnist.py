"""Fashion-MNIST and whatever else comes as a pair of IDX files, gzipped or plain.

IDX: two zero bytes, the type (8: unsigned byte), the number of dimensions, each dimension as
a big-endian 32-bit number, then the bytes. Images have three dimensions, labels one.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tilewright.data.dataset import Dataset, checked_labels
from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

CLASSES = 10
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


def read_folder(folder: Path) -> Dataset:
    """The test part if it is there, else the training part."""
    images = find(folder, TEST) or find(folder, TRAINING)
    if images is None:
        raise TilewrightError(f"{folder}: no file named *{IMAGES}[.gz]")
    return read(images)


def read(path: Path) -> Dataset:
    """An images file and the labels file beside it that goes with it."""
    part = path.name.removesuffix(".gz").removesuffix(IMAGES)
    beside = [path.with_name(f"{part}{LABELS}{end}") for end in ("", ".gz")]
    found = next((candidate for candidate in beside if candidate.is_file()), None)
    if found is None:
        raise TilewrightError(f"{beside[0]}[.gz] is missing: the labels of {path.name}")
    images, labels = read_idx(path, dimensions=3), read_idx(found, dimensions=1)
    if len(images) != len(labels):
        raise TilewrightError(
            f"{path} has {len(images)} images, but {found.name} has {len(labels)} labels"
        )
    if images.size == 0:
        raise TilewrightError(f"{path}: holds no images")
    checked = checked_labels(labels, CLASSES, str(found))
    return Dataset("fashion-mnist", images[:, None], checked, str(path))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file of unsigned bytes with that many dimensions."""
    check_file(path)
    try:
        with path.open("rb") as raw:
            if raw.read(2) == b"\x1f\x8b":
                raw.seek(0)
                with gzip.open(raw) as file:
                    return _read(file, path, dimensions)
            raw.seek(0)
            return _read(raw, path, dimensions)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise TilewrightError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def _read(file: BinaryIO | gzip.GzipFile, path: Path, dimensions: int) -> NDArray[np.uint8]:
    header = file.read(4 + 4 * dimensions)
    if header[:4] != bytes([0, 0, 8, dimensions]):
        raise TilewrightError(
            f"{path}: magic number {header[:4].hex(' ') or 'missing'}, but an IDX file of bytes "
            f"in {dimensions} dimension{'s' if dimensions > 1 else ''} "
            f"starts 00 00 08 {dimensions:02x}"
        )
    if len(header) < 4 + 4 * dimensions:
        raise TilewrightError(f"{path}: ends inside its header")
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
    expected = math.prod(shape)
    # Read piece by piece: memory follows what is really there, not what the header claims.
    content = bytearray()
    while len(content) <= expected and (piece := file.read(CHUNK)):
        content += piece
    if len(content) != expected:
        found = f"only {len(content)}" if len(content) < expected else "more"
        raise TilewrightError(
            f"{path}: header says {' x '.join(map(str, shape))} = {expected} bytes, "
            f"but {found} follow"
        )
    return np.frombuffer(content, np.uint8).reshape(shape)
