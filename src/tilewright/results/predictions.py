"""What was predicted for every image, as a file: CSV, Parquet or a NumPy archive."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from tilewright.errors import TilewrightError
from tilewright.files import atomic_write

ROWS = 1 << 16  # at a time: there may be more of them than text fits into memory


@dataclass(frozen=True, eq=False)
class Predictions:
    """In the order of the images. `values` are probabilities of what was predicted, or outputs as
    they are where the network ends without a softmax; `labels` None where the data has none.
    """

    predicted: NDArray[np.int64]
    values: NDArray[np.float32]
    labels: NDArray[np.int64] | None
    probabilities: bool

    @property
    def value(self) -> str:
        """What `values` are."""
        return "probability" if self.probabilities else "output"

    def columns(self, first: int = 0, last: int | None = None) -> dict[str, NDArray[np.generic]]:
        index = np.arange(len(self.predicted))
        every = {"index": index, "label": self.labels, "predicted": self.predicted,
                 self.value: self.values}  # fmt: skip
        return {name: each[first:last] for name, each in every.items() if each is not None}

    def csv(self) -> Iterator[str]:
        """One row an image; the label is empty where the data has none."""
        for first in range(0, len(self.predicted), ROWS):
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            if not first:
                writer.writerow(["index", "label", "predicted", self.value])
            for index in range(first, min(first + ROWS, len(self.predicted))):
                label = "" if self.labels is None else self.labels[index]
                cells = (index, label, self.predicted[index], f"{self.values[index]:.6f}")
                writer.writerow(cells)
            yield text.getvalue()

    def write(self, path: Path) -> None:
        """As the name's ending has it: .parquet, .npz, and CSV for any other."""
        with atomic_write(path) as file:
            if path.suffix == ".npz":
                arrays: dict[str, Any] = {**self.columns()}
                np.savez(file, **arrays)
            elif path.suffix == ".parquet":
                self._parquet(file)
            else:
                file.writelines(part.encode() for part in self.csv())

    def _parquet(self, file: IO[bytes]) -> None:
        import pyarrow
        from pyarrow.parquet import ParquetWriter

        with ParquetWriter(file, pyarrow.table(self.columns(0, 0)).schema) as writer:
            for first in range(0, len(self.predicted), ROWS):
                writer.write_table(pyarrow.table(self.columns(first, first + ROWS)))


def check_kind(path: Path) -> None:
    """Refuse a file that cannot be made here, before the work starts."""
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise TilewrightError(f"{path}: Parquet needs pyarrow: pip install 'tilewright[parquet]'")
