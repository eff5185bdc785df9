"""CIFAR-10's binary batches: records of one label byte, then 1024 red, green and blue bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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

SHAPE = (3, 32, 32)
RECORD = 1 + 3 * 32 * 32
CLASSES = 10
NAMES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"


def is_folder(folder: Path) -> bool:
    """Whether the folder holds at least one batch."""
    return any((folder / name).is_file() for name in (*TRAINING, TEST))


def batches_of(folder: Path) -> list[Path]:
    """The training batches that are there, in order; without any, the test batch."""
    return [folder / name for name in TRAINING if (folder / name).is_file()] or [folder / TEST]


def read_folder(folder: Path, wanted: Wanted = ALL) -> Dataset:
    return read(batches_of(folder), wanted)


def read(batches: list[Path], wanted: Wanted = ALL) -> Dataset:
    """These batch files, one after the other, each any whole number of records."""
    source = str(batches[0]) if len(batches) == 1 else _names(batches)
    check_shape(SHAPE, wanted.shape, source)
    stored = [count(path) for path in batches]
    skip, left = wanted.start, wanted.count(sum(stored))
    check_size(left, SHAPE, 1, source)
    records = []
    for path, here in zip(batches, stored, strict=True):
        start = min(skip, here)
        records.append(_records(path, start, min(here - start, left)))
        skip, left = skip - start, left - len(records[-1])
    images = np.concatenate([part[:, 1:] for part in records]).reshape(-1, *SHAPE)
    labels = np.concatenate([part[:, 0] for part in records]).astype(np.int64)
    return Dataset("cifar10", images, labels, source, NAMES)


def count(path: Path) -> int:
    """The records in a batch, by the size of the file."""
    check_file(path)
    size = path.stat().st_size
    if size == 0 or size % RECORD:
        raise TilewrightError(
            f"{path}: {size} bytes is not a whole number of {RECORD}-byte records "
            f"({size // RECORD} and {size % RECORD} bytes over)"
        )
    return size // RECORD


def _records(path: Path, start: int, count: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    try:
        content = np.fromfile(path, np.uint8, count * RECORD, offset=start * RECORD)
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    if content.size != count * RECORD:
        raise TilewrightError(f"{path}: became shorter while it was read")
    records = content.reshape(-1, RECORD)
    checked_labels(records[:, 0], CLASSES, str(path))
    return records


def _names(batches: list[Path]) -> str:
    return f"{batches[0].parent} ({', '.join(path.name for path in batches)})"
