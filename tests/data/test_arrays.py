from __future__ import annotations

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.data import arrays
from tilewright.data import dataset as dataset_module
from tilewright.data.dataset import Wanted
from tilewright.errors import TilewrightError

PIXELS = np.arange(2 * 3 * 4 * 5, dtype=np.uint8).reshape(2, 3, 4, 5)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_round_trip(tmp_path, save, dtype):
    save(tmp_path / "a.npz", images=PIXELS.astype(dtype), labels=np.array([1, 0]))
    dataset = arrays.read(tmp_path / "a.npz")
    np.testing.assert_array_equal(dataset.images, PIXELS)
    assert dataset.images.dtype == (np.uint8 if dtype == np.uint8 else np.float32)
    assert dataset.labels.tolist() == [1, 0]


def test_grey_images_and_no_labels(tmp_path):
    np.savez(tmp_path / "a.npz", images=PIXELS[:, 0])
    dataset = arrays.read(tmp_path / "a.npz")
    assert dataset.shape == (1, 4, 5)
    assert dataset.labels is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"pictures": PIXELS}, "no array named 'images'"),
        ({"images": PIXELS[0, 0]}, "2 dimensions"),
        ({"images": PIXELS.astype(np.int32)}, "it must be uint8 or float"),
        ({"images": np.asfortranarray(PIXELS)}, "Fortran order"),
        ({"images": PIXELS[:0]}, "holds nothing"),
        ({"images": np.array(["a"], object)}, "cannot use 'images'"),
        ({"images": np.full((1, 1, 2, 2), np.nan)}, "image 0 holds a value that is not finite"),
        ({"images": np.full((1, 1, 2, 2), 1e300)}, "not finite"),
        ({"images": PIXELS, "labels": np.array([1])}, "2 images need 2 whole numbers"),
        ({"images": PIXELS, "labels": np.array([0.5, 1])}, "whole numbers"),
        ({"images": PIXELS, "labels": np.array([0, -1])}, "label -1 of image 1"),
        (
            {"images": PIXELS, "labels": np.array([2**63, 1], np.uint64)},
            "label 9223372036854775808",
        ),
        ({"images": np.zeros((1,) * 9, np.uint8)}, "'images' has shape"),
    ],
)
def test_wrong_content_is_named(tmp_path, content, words):
    np.savez(tmp_path / "a.npz", **content)
    with pytest.raises(TilewrightError, match=r"a\.npz") as error:
        arrays.read(tmp_path / "a.npz")
    assert words in str(error.value)


def test_memory_follows_the_content_not_the_header(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "|u1", "fortran_order": False, "shape": (10**6, 3, 10**4, 10**4)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", header.getvalue() + b"few")
    tracemalloc.start()
    with pytest.raises(TilewrightError, match="does not hold"):
        arrays.read(tmp_path / "a.npz")
    assert tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()


def unpacked(path, **wanted):
    """The most memory that reading took, and the error, if there was one."""
    tracemalloc.start()
    error = None
    try:
        arrays.read(path, Wanted(**wanted))
    except TilewrightError as refused:
        error = str(refused)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak, error


@pytest.fixture(scope="module")
def bomb(tmp_path_factory):
    """30 MB of nothing in 30 kB."""
    path = tmp_path_factory.mktemp("bomb") / "a.npz"
    images = np.zeros((30, 1, 1000, 1000), np.uint8)
    np.savez_compressed(path, images=images, labels=np.zeros(30, int))
    return path


def test_a_shape_that_does_not_fit_is_refused_unread(bomb):
    peak, error = unpacked(bomb, shape=(1, 28, 28))
    assert "images are 1x1000x1000, but the network takes 1x28x28" in error
    assert peak < 8e6


def test_no_more_images_are_unpacked_than_wanted(bomb):
    peak, error = unpacked(bomb, images=2)
    assert error is None
    assert peak < 12e6
    dataset = arrays.read(bomb, Wanted(images=2))
    assert (len(dataset), len(dataset.labels)) == (2, 2)


def test_more_than_is_read_at_once_is_refused_unread(bomb, monkeypatch):
    monkeypatch.setattr(dataset_module, "LARGEST_BYTES", 20_000_000)
    peak, error = unpacked(bomb)
    assert "30 images of 1x1000x1000 are 30,000,000 bytes" in error
    assert "take fewer with --images" in error
    assert peak < 8e6


def test_labels_that_do_not_fit_are_refused_unread(tmp_path):
    labels = np.zeros(3_000_000, np.int64)
    np.savez_compressed(tmp_path / "a.npz", images=PIXELS, labels=labels)
    peak, error = unpacked(tmp_path / "a.npz")
    assert "2 images need 2 whole numbers" in error
    assert peak < 8e6


def test_a_monstrous_header_is_refused_unread(tmp_path):
    content = b"\x93NUMPY\x02\x00" + (30_000_000).to_bytes(4, "little") + b" " * 30_000_000
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("images.npy", content)
    del content
    peak, error = unpacked(tmp_path / "a.npz")
    assert "damaged header" in error
    assert peak < 8e6


@given(data=st.data(), compressed=st.booleans())
def test_any_damage_is_refused_or_harmless(data, compressed, tmp_path_factory):
    path = tmp_path_factory.mktemp("fuzz") / "a.npz"
    (np.savez_compressed if compressed else np.savez)(path, images=PIXELS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(content[: data.draw(st.integers(0, len(content)))]))
    try:
        assert arrays.read(path).images.nbytes <= 8 * PIXELS.size
    except TilewrightError as error:
        assert "a.npz" in str(error)


def test_arrays_of_a_program():
    dataset = arrays.given((PIXELS, np.array([1, 0], np.uint8)), Wanted((3, 4, 5), 1))
    np.testing.assert_array_equal(dataset.images, PIXELS[:1])
    assert dataset.labels.tolist() == [1]
    assert arrays.given(PIXELS[:, 0]).shape == (1, 4, 5)
    values = arrays.given(PIXELS.astype(np.float32)[:, :, ::-1])  # not contiguous
    assert values.images.dtype == np.float32 and values.images.flags.c_contiguous
    assert values.labels is None


def test_whatever_numpy_reads_is_an_array():
    torch = pytest.importorskip("torch")
    np.testing.assert_array_equal(arrays.given(torch.from_numpy(PIXELS)).images, PIXELS)


@pytest.mark.parametrize(
    "handed, words",
    [
        ([1, 2], "'images' is list, not an array"),
        (PIXELS.tolist(), "'images' is list, not an array"),
        ((PIXELS, [1, 0]), "'labels' is list, not an array"),
        ((PIXELS, np.zeros(2), 3), "'images' is tuple, not an array"),
        (PIXELS.astype(np.float64), "must be uint8 .pixels. or float32 .values."),
        (PIXELS.astype(np.int64), "'images' is int64; it must be uint8 or float"),
        (PIXELS[0, 0], "has 2 dimensions; it needs image, channel, y, x"),
        (PIXELS[:0], "it holds nothing"),
        (PIXELS[:, :1], "images are 1x4x5, but the network takes 3x4x5"),
        (np.full(PIXELS.shape, np.nan, np.float32), "image 0 holds a value that is not finite"),
        ((PIXELS, np.zeros(3, int)), "2 images need 2 whole numbers"),
        ((PIXELS, np.zeros(2)), "2 images need 2 whole numbers"),
        ((PIXELS, np.array([0, -1])), "label -1 of image 1 is no class"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_images_are_refused_in_one_line(handed, words):
    with pytest.raises(TilewrightError, match=f"^the given arrays: .*{words}"):
        arrays.given(handed, Wanted((3, 4, 5)))
