"""Networks that Keras itself exported (`keras/make.py`): they compute what Keras said they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.model.formats.graphs import outputs
from tilewright.model.formats import onnx_import

FILES = sorted((Path(__file__).parent / "keras").glob("*.onnx"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_keras_says_the_same(path):
    network = onnx_import.read(path)
    with np.load(path.with_suffix(".npz")) as kept:
        x, expected = kept["x"], kept["y"]
    if x.ndim == 4:  # rows are pictures already
        x = x.transpose(0, 3, 1, 2)
    found = outputs(network, np.ascontiguousarray(x.reshape(2, *network.input.shape)))
    assert np.abs(found.reshape(expected.shape) - expected).max() < 1e-5


def test_all_of_them_are_there():
    assert len(FILES) == 11
