from __future__ import annotations

import csv

import numpy as np
import pytest

from tilewright.errors import TilewrightError
from tilewright.results import predictions
from tilewright.results.predictions import Predictions, check_kind

GIVEN = Predictions(
    np.array([1, 3, 0]), np.array([1, 0.25, 0.5], np.float32), np.array([1, 2, 0]), True
)


@pytest.fixture(params=[1, 2, 1000], autouse=True)
def rows_at_a_time(request, monkeypatch):
    monkeypatch.setattr(predictions, "ROWS", request.param)


def test_csv(tmp_path):
    GIVEN.write(tmp_path / "a.txt")
    assert (tmp_path / "a.txt").read_text().splitlines() == [
        "index,label,predicted,probability", "0,1,1,1.000000", "1,2,3,0.250000", "2,0,0,0.500000",
    ]  # fmt: skip


def test_without_labels_or_softmax(tmp_path):
    Predictions(GIVEN.predicted, GIVEN.values, None, False).write(tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [""] * 3
    assert [row["output"] for row in rows] == ["1.000000", "0.250000", "0.500000"]


def test_npz(tmp_path):
    GIVEN.write(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as found:
        assert list(found) == ["index", "label", "predicted", "probability"]
        np.testing.assert_array_equal(found["predicted"], GIVEN.predicted)
        np.testing.assert_array_equal(found["probability"], GIVEN.values)


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    GIVEN.write(tmp_path / "a.parquet")
    found = parquet.read_table(tmp_path / "a.parquet").to_pydict()
    assert found == {
        "index": [0, 1, 2], "label": [1, 2, 0], "predicted": [1, 3, 0],
        "probability": [1.0, 0.25, 0.5],
    }  # fmt: skip


def test_parquet_without_pyarrow_is_refused_first(tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "find_spec", lambda name: None)
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[parquet\]'"):
        check_kind(tmp_path / "a.parquet")
    check_kind(tmp_path / "a.npz")
