"""CIFAR-10's binary batches: records of one label byte, then 1024 red, green and blue bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilewright.data.dataset import Dataset, checked_labels
from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

RECORD = 1 + 3 * 32 * 32
CLASSES = 10
TRAINING = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"


def is_folder(folder: Path) -> bool:
    """Whether the folder holds at least one batch."""
    return any((folder / name).is_file() for name in (*TRAINING, TEST))


def read_folder(folder: Path) -> Dataset:
    """The training batches that are there, in order; without any, the test batch."""
    batches = [folder / name for name in TRAINING if (folder / name).is_file()]
    return read(batches or [folder / TEST])


def read(batches: list[Path]) -> Dataset:
    """These batch files, one after the other, each any whole number of records."""
    records = [_records(path) for path in batches]
    images = np.concatenate([part[:, 1:] for part in records]).reshape(-1, 3, 32, 32)
    labels = np.concatenate([part[:, 0] for part in records]).astype(np.int64)
    source = str(batches[0]) if len(batches) == 1 else _names(batches)
    return Dataset("cifar10", images, labels, source)


def _records(path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    check_file(path)
    try:
        content = np.fromfile(path, np.uint8)
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    if content.size == 0 or content.size % RECORD:
        raise TilewrightError(
            f"{path}: {content.size} bytes is not a whole number of {RECORD}-byte records "
            f"({content.size // RECORD} and {content.size % RECORD} bytes over)"
        )
    records = content.reshape(-1, RECORD)
    checked_labels(records[:, 0], CLASSES, str(path))
    return records


def _names(batches: list[Path]) -> str:
    return f"{batches[0].parent} ({', '.join(path.name for path in batches)})"
