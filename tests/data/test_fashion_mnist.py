from __future__ import annotations

import gzip
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.data import fashion_mnist
from tilewright.data.dataset import Wanted
from tilewright.errors import TilewrightError

IMAGES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
LABELS = np.array([9, 0], np.uint8)


def idx(array):
    header = struct.pack(">BBBB", 0, 0, 8, array.ndim) + struct.pack(
        f">{array.ndim}I", *array.shape
    )
    return header + array.tobytes()


def write(folder, part="t10k", images=None, labels=None, pack=lambda content: content, end=""):
    image_file = folder / f"{part}-images-idx3-ubyte{end}"
    image_file.write_bytes(pack(idx(IMAGES) if images is None else images))
    label_file = folder / f"{part}-labels-idx1-ubyte{end}"
    label_file.write_bytes(pack(idx(LABELS) if labels is None else labels))
    return image_file


@pytest.mark.parametrize(("pack", "end"), [(lambda c: c, ""), (gzip.compress, ".gz")])
def test_plain_and_gzipped(tmp_path, pack, end):
    write(tmp_path, pack=pack, end=end)
    dataset = fashion_mnist.read_folder(tmp_path)
    np.testing.assert_array_equal(dataset.images[:, 0], IMAGES)
    assert dataset.labels.tolist() == [9, 0]


def test_the_test_part_comes_before_the_training_part(tmp_path):
    write(tmp_path, part="train", labels=idx(np.array([1, 1], np.uint8)))
    assert fashion_mnist.read_folder(tmp_path).labels.tolist() == [1, 1]
    write(tmp_path)
    assert fashion_mnist.read_folder(tmp_path).labels.tolist() == [9, 0]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ({"images": b"\0\0\x08\x01" + b"\0" * 12}, "magic number 00 00 08 01"),
        ({"images": b""}, "magic number missing"),
        ({"images": idx(IMAGES)[:10]}, "ends inside its header"),
        ({"images": idx(IMAGES)[:-1]}, "but only 23 follow"),
        ({"images": idx(IMAGES) + b"x"}, "but more follow"),
        ({"labels": idx(np.array([9, 10], np.uint8))}, "label 10 of image 1"),
        ({"labels": idx(np.array([9], np.uint8))}, "2 images, but t10k-labels"),
        ({"images": gzip.compress(idx(IMAGES))[:-9]}, "damaged gzip"),
        ({"images": idx(IMAGES[:0]), "labels": idx(LABELS[:0])}, "holds no images"),
    ],
)
def test_damage_is_named(tmp_path, damage, words):
    path = write(tmp_path, **damage)
    with pytest.raises(TilewrightError, match="t10k") as error:
        fashion_mnist.read(path)
    assert words in str(error.value)


def test_missing_labels_are_named(tmp_path):
    path = write(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(TilewrightError, match="t10k-labels-idx1-ubyte"):
        fashion_mnist.read(path)


@pytest.mark.parametrize("pack", [lambda c: c, gzip.compress])
def test_memory_follows_the_file_not_its_header(tmp_path, pack):
    """A header that claims 2^96 bytes must not cost more than the few that are there."""
    path = tmp_path / "t10k-images-idx3-ubyte"
    path.write_bytes(pack(b"\0\0\x08\x03" + b"\xff" * 12 + b"few"))
    tracemalloc.start()
    with pytest.raises(TilewrightError, match="only 3 follow"):
        fashion_mnist.read_idx(path, dimensions=3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6


def peak_of(path, **wanted):
    tracemalloc.start()
    error = None
    try:
        fashion_mnist.read(path, Wanted(**wanted))
    except TilewrightError as refused:
        error = str(refused)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, error


def test_no_more_is_unpacked_than_wanted(tmp_path):
    many = idx(np.zeros((20, 1000, 1000), np.uint8))
    path = write(tmp_path, images=many, labels=idx(np.zeros(20, np.uint8)), pack=gzip.compress)
    peak, error = peak_of(path, images=2)
    assert error is None
    assert peak < 12e6
    assert len(fashion_mnist.read(path, Wanted(images=2)).labels) == 2
    peak, error = peak_of(path, shape=(3, 28, 28))
    assert "images are 1x1000x1000, but the network takes 3x28x28" in error
    assert peak < 8e6


def test_more_than_is_read_at_once_is_refused_unread(tmp_path):
    header = struct.pack(">BBBB3I", 0, 0, 8, 3, 10, 60_000, 60_000)
    labels = idx(np.zeros(10, np.uint8))
    path = write(tmp_path, images=header + bytes(10_000_000), labels=labels, pack=gzip.compress)
    peak, error = peak_of(path)
    assert "are 36,000,000,000 bytes" in error
    assert peak < 8e6


def test_the_damaged_one_of_two_is_named(tmp_path):
    path = write(tmp_path, pack=gzip.compress, end=".gz")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TilewrightError, match=r"t10k-images.*damaged gzip"):
        fashion_mnist.read(path)


@given(data=st.data(), packed=st.booleans())
def test_any_damage_is_refused_or_harmless(data, packed, tmp_path_factory):
    content = bytearray(gzip.compress(idx(IMAGES), mtime=0) if packed else idx(IMAGES))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("fuzz")
    path = write(folder, images=bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        assert len(fashion_mnist.read(path)) == 2
    except TilewrightError as error:
        assert "t10k" in str(error)
