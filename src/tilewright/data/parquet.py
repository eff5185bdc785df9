"""Parquet files with a row an image: encoded pictures, or their values as lists.

The column is called `image`, `images` or `img`, and that of the classes, if there is one, `label`
or `labels`. A picture is binary (PNG, JPEG and the like) or, as Hugging Face's data sets have it, a
struct with such `bytes`; it is brought to the network's shape as pictures in a folder are. Lists,
nested or flat, hold all of an image's values in the order channel, y, x: uint8 pixels, or floats.
Rows are read some at a time: a file may be larger than memory.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.data import folder
from tilewright.data.arrays import labels_of, values_of
from tilewright.data.dataset import ALL, Dataset, Wanted, check_size
from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.model.layers import Shape, dimensions

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

IMAGES, LABELS = ("image", "images", "img"), ("label", "labels")
ROWS = 1024  # at a time


def count(path: Path) -> int:
    """The rows of a file, as its last bytes have it."""
    with _opened(path) as file:
        return int(file.metadata.num_rows)


def read(path: Path, wanted: Wanted = ALL) -> Dataset:
    with _opened(path) as file:
        names = file.schema_arrow.names
        column = next((name for name in IMAGES if name in names), None)
        if column is None:
            raise TilewrightError(f"{path}: no column named {', '.join(IMAGES)}, only {names}")
        label = next((name for name in LABELS if name in names), None)
        many = wanted.count(file.metadata.num_rows)
        if many < 1:
            raise TilewrightError(f"{path}: holds no images")
        images: NDArray[Any] | None = None
        classes = np.empty(many, np.int64)
        done = 0
        for rows in _rows(file, [column, *([label] if label else [])], wanted.start, many):
            pixels = _images(rows[column], wanted.shape, f"{path}: {column!r}")
            if images is None:
                shape = pixels.shape[1:]
                check_size(many, shape, pixels.dtype.itemsize, str(path))
                images = np.empty((many, *shape), pixels.dtype)
            images[done : done + len(pixels)] = pixels
            if label:
                classes[done : done + len(pixels)] = _classes(rows[label], f"{path}: {label!r}")
            done += len(pixels)
    if images is None or done < many:
        raise TilewrightError(f"{path}: ends after {done} of {many} rows")
    return Dataset(path.stem, images, classes if label else None, str(path))


@contextmanager
def _opened(path: Path) -> Iterator[ParquetFile]:
    """A Parquet file; what is wrong with it is an error that names it."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ModuleNotFoundError as error:
        raise TilewrightError(
            f"{path}: Parquet needs pyarrow: pip install 'tilewright[parquet]'"
        ) from error
    check_file(path)
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except pyarrow.ArrowException as error:
        raise TilewrightError(f"{path}: damaged Parquet file: {error}") from error
    except OSError as error:  # pyarrow's own for damaged pages has no number
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error


def _rows(
    file: ParquetFile, columns: list[str], start: int, many: int
) -> Iterator[pyarrow.RecordBatch]:
    """`many` rows from the `start`-th on; groups of rows outside are not touched."""
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]
    ends = np.cumsum(sizes)
    groups = [i for i, end in enumerate(ends) if end > start and end - sizes[i] < start + many]
    at = int(ends[groups[0]] - sizes[groups[0]]) if groups else 0
    for rows in file.iter_batches(ROWS, row_groups=groups, columns=columns):
        first, last = max(start - at, 0), min(start + many - at, len(rows))
        at += len(rows)
        if first < last:
            yield rows.slice(first, last - first)
        if at >= start + many:
            return


def _images(column: pyarrow.Array, shape: Shape | None, name: str) -> NDArray[Any]:
    """The images of some rows: pictures that are decoded, or lists of values."""
    import pyarrow

    kind = column.type
    if column.null_count:
        raise TilewrightError(f"{name} has rows without an image")
    if pyarrow.types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        column, kind = column.field("bytes"), kind.field("bytes").type
    if pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
        pictures = [io.BytesIO(each or b"") for each in column.to_pylist()]
        wanted = shape or folder.shape_of(pictures[0], name)
        folder.check_channels(wanted, name)
        return np.stack([folder.decoded(each, name, wanted) for each in pictures])
    return values_of(_lists(column, shape, name), name)


def _lists(column: pyarrow.Array, shape: Shape | None, name: str) -> NDArray[Any]:
    import pyarrow

    many, known = len(column), getattr(column.type, "shape", None)
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    while hasattr(column, "flatten") and hasattr(column.type, "value_type"):
        column = column.flatten()
    numbers = column.type
    if numbers != pyarrow.uint8() and not pyarrow.types.is_floating(numbers):
        raise TilewrightError(
            f"{name} is {numbers}; it must be pictures, or lists of uint8 or float"
        )
    wanted = shape or (known and ((1, *known) if len(known) == 2 else tuple(known)))
    if not wanted:
        raise TilewrightError(f"{name} does not say the shape of its images: a network would")
    if len(column) != many * math.prod(wanted) or column.null_count:
        raise TilewrightError(
            f"{name} has images of about {len(column) / many:.0f} values, but the network takes "
            f"{dimensions(wanted)}"
        )
    return np.asarray(column.to_numpy(zero_copy_only=False)).reshape(many, *wanted)


def _classes(column: pyarrow.Array, name: str) -> NDArray[np.int64]:
    import pyarrow

    if not pyarrow.types.is_integer(column.type) or column.null_count:
        raise TilewrightError(f"{name} is {column.type}; each row needs a whole number")
    return labels_of(column.to_numpy(zero_copy_only=False), name)
