from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from tilewright.data import catalogue
from tilewright.data.dataset import Wanted
from tilewright.errors import TilewrightError

arrow = pytest.importorskip("pyarrow")
files = pytest.importorskip("pyarrow.parquet")

PIXELS = np.random.default_rng(3).integers(0, 256, (10, 3, 4, 5), np.uint8)


def encoded(pixels):
    file = io.BytesIO()
    Image.fromarray(np.moveaxis(pixels, 0, 2)).save(file, "PNG")
    return file.getvalue()


def nested(numbers):
    return arrow.list_(arrow.list_(arrow.list_(numbers)))


def write(path, **columns):
    files.write_table(arrow.table(columns), path, row_group_size=3)
    return path


@pytest.mark.parametrize(
    "column",
    [
        lambda: [encoded(each) for each in PIXELS],
        lambda: [{"bytes": encoded(each), "path": "a.png"} for each in PIXELS],
        lambda: [each.ravel() for each in PIXELS],
        lambda: arrow.array(PIXELS.tolist(), nested(arrow.uint8())),
        lambda: arrow.FixedShapeTensorArray.from_numpy_ndarray(PIXELS),
    ],
    ids=["pictures", "hugging-face", "flat", "nested", "tensors"],
)
def test_pictures_and_lists_are_images(column, tmp_path):
    path = write(tmp_path / "a.parquet", img=column(), label=np.arange(10, dtype=np.int8))
    for start, many in ((0, 10), (2, 3), (8, 2)):
        found = catalogue.open_stored(path, Wanted((3, 4, 5), many, start))
        np.testing.assert_array_equal(found.images, PIXELS[start : start + many])
        assert found.images.flags.c_contiguous
        assert found.labels.tolist() == list(range(start, start + many))


def test_shapes_that_are_known_need_no_network(tmp_path):
    tensors = arrow.FixedShapeTensorArray.from_numpy_ndarray(PIXELS)
    assert catalogue.open_stored(write(tmp_path / "a.parquet", image=tensors)).shape == (3, 4, 5)
    pictures = [encoded(each) for each in PIXELS]
    assert catalogue.open_stored(write(tmp_path / "b.parquet", image=pictures)).shape == (3, 4, 5)
    with pytest.raises(TilewrightError, match="does not say the shape"):
        catalogue.open_stored(write(tmp_path / "c.parquet", image=[[1.0, 2.0]]))


def test_floats_are_values_and_pictures_are_resized(tmp_path):
    values = [each.ravel().astype(np.float64) for each in PIXELS]
    found = catalogue.open_data(write(tmp_path / "a.parquet", image=values), (3, 4, 5))
    assert found.images.dtype == np.float32 and found.labels is None
    pictures = write(tmp_path / "b.parquet", image=[encoded(each) for each in PIXELS])
    assert catalogue.open_data(pictures, (1, 8, 8)).images.shape == (10, 1, 8, 8)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (lambda: {"pixels": [[1]]}, "no column named image, images, img"),
        (
            lambda: {"image": arrow.array([[1, 2]], arrow.list_(arrow.int64()))},
            "it must be pictures, or",
        ),
        (
            lambda: {"image": arrow.array([[1], [2, 3]], arrow.list_(arrow.uint8()))},
            "the network takes",
        ),
        (lambda: {"image": [b"no picture"]}, "'image': not a readable picture"),
        (lambda: {"image": [None, b"x"]}, "rows without an image"),
        (
            lambda: {"image": [encoded(PIXELS[0])], "label": ["cat"]},
            "each row needs a whole number",
        ),
        (lambda: {"image": [encoded(PIXELS[0])], "label": [-1]}, "label -1 of image 0 is no class"),
        (lambda: {"image": arrow.array([], arrow.binary())}, "holds no images"),
        (lambda: {"image": [[float("nan")] * 60]}, "not finite"),
    ],
)
def test_what_is_wrong_is_named(columns, words, tmp_path):
    path = write(tmp_path / "a.parquet", **columns())
    with pytest.raises(TilewrightError, match=words) as error:
        catalogue.open_data(path, (3, 4, 5))
    assert str(path) in str(error.value)


def test_damage_is_one_line(tmp_path):
    path = write(tmp_path / "a.parquet", image=[encoded(each) for each in PIXELS])
    whole = path.read_bytes()
    for end in (0, 3, len(whole) // 2):
        path.write_bytes(whole[:end])
        with pytest.raises(TilewrightError, match=r"a\.parquet"):
            catalogue.open_data(path, (3, 4, 5))
    path.write_bytes(whole[:200] + bytes(100) + whole[300:])
    with pytest.raises(TilewrightError, match=r"a\.parquet"):
        catalogue.open_data(path, (3, 4, 5))


def test_files_of_a_folder_must_be_alike(tmp_path):
    write(tmp_path / "a.parquet", image=[encoded(PIXELS[0])])
    write(tmp_path / "b.parquet", image=[encoded(PIXELS[1])], label=[1])
    with pytest.raises(TilewrightError, match="differ in their images"):
        catalogue.open_data(tmp_path, (3, 4, 5))
