"""A data set in parts is the data set: the same images and labels in the same order."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.data.test_cifar10 import records
from tests.data.test_fashion_mnist import write as write_idx
from tilewright.data import catalogue
from tilewright.data.parts import LARGEST_BYTES, list_data, part_size
from tilewright.errors import TilewrightError

GENERATOR = np.random.default_rng(7)
PIXELS = GENERATOR.integers(0, 256, (11, 1, 4, 3), np.uint8)
CLASSES = np.arange(11) % 3


def cifar10(folder: Path) -> Path:
    for number, images in ((1, 3), (2, 5)):
        records(images).tofile(folder / f"data_batch_{number}.bin")
    return folder


def idx(folder: Path) -> Path:
    write_idx(folder)
    return folder


def stored(folder: Path) -> Path:
    np.savez(folder / "a.npz", images=PIXELS, labels=CLASSES)
    return folder / "a.npz"


def packed(folder: Path) -> Path:
    np.savez_compressed(folder / "a.npz", images=PIXELS.astype(np.float32))
    return folder / "a.npz"


def shards(folder: Path) -> Path:
    np.savez(folder / "b.npz", images=PIXELS[4:], labels=CLASSES[4:])
    np.savez(folder / "a.npz", images=PIXELS[:4], labels=CLASSES[:4])
    return folder


def parquet(folder: Path) -> Path:
    arrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    rows = {"image": [each.ravel() for each in PIXELS], "label": CLASSES}
    write_table(arrow.table(rows), folder / "a.parquet", row_group_size=4)
    return folder / "a.parquet"


def pictures(folder: Path) -> Path:
    for index, pixels in enumerate(PIXELS):
        place = folder / "ab"[index % 2]
        place.mkdir(exist_ok=True)
        Image.fromarray(pixels[0]).save(place / f"{index}.png")
    return folder


SOURCES = (cifar10, idx, stored, packed, shards, parquet, pictures)


@pytest.mark.parametrize("make", SOURCES)
@pytest.mark.parametrize(("batch", "images"), [(1, None), (2, None), (3, 2), (100, None)])
def test_all_parts_are_all_of_it(make, batch, images, tmp_path):
    source = make(tmp_path)
    shape = (3, 32, 32) if make is cifar10 else (1, 4, 3)
    whole = catalogue.open_data(source, shape, images)
    found = list_data(source, shape, images).cut(batch, 1)
    # As they reach a worker.
    read = [pickle.loads(pickle.dumps(part)).read() for part in found.all]
    assert [len(each) for each in read] == [part.images for part in found.all]
    assert [part.first for part in found.all] == np.cumsum([0, *map(len, read)])[:-1].tolist()
    assert found.images == len(whole)
    np.testing.assert_array_equal(np.concatenate([each.images for each in read]), whole.images)
    assert {each.images.dtype for each in read} == {whole.images.dtype}
    if whole.labels is None:
        assert all(each.labels is None for each in read)
    else:
        np.testing.assert_array_equal(np.concatenate([each.labels for each in read]), whole.labels)


@pytest.mark.parametrize("source", ["drawn", catalogue.SAMPLE, (PIXELS, CLASSES), PIXELS])
def test_names_and_arrays_have_parts(source):
    shape = (1, 4, 3)
    whole = catalogue.open_data(source, shape, 9)
    read = [part.read() for part in list_data(source, shape, 9).cut(2, 1).all]
    assert len(read) == 5
    np.testing.assert_array_equal(np.concatenate([each.images for each in read]), whole.images)


def test_a_part_of_arrays_carries_no_more_than_its_own():
    many = np.zeros((1000, 1, 28, 28), np.uint8)
    first, *_ = list_data(many, (1, 28, 28), None).cut(10, 1).all
    assert len(pickle.dumps(first)) < 2 * first.images * 28 * 28


@given(
    images=st.integers(1, 10**9), side=st.integers(1, 300), batch=st.integers(1, 1000),
    workers=st.integers(1, 1000),
)  # fmt: skip
def test_parts_are_whole_batches_and_neither_few_nor_large(images, side, batch, workers):
    size = part_size(images, (3, side, side), batch, workers)
    assert size % batch == 0
    assert size == batch or size * 3 * side * side <= LARGEST_BYTES
    assert size == batch or images / size > 4 * workers


@pytest.mark.parametrize(
    ("source", "images", "words"),
    [
        ("nowhere/at.npz", None, "'nowhere/at.npz' does not exist"),
        ("fashion-mnst", None, "did you mean"),
        (catalogue.SAMPLE, 1001, "--images 1001: fashion-mnist-sample has 1000 images"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_read(source, images, words):
    with pytest.raises(TilewrightError, match=words):
        list_data(source, (1, 28, 28), images).cut(10, 2)


def test_nothing_but_headers_is_read(tmp_path, monkeypatch):
    path = stored(tmp_path)
    monkeypatch.setattr(np, "frombuffer", None)
    assert list_data(path, (1, 4, 3), None).cut(4, 1).images == 11
