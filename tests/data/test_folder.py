from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tilewright.data import folder
from tilewright.errors import TilewrightError


def save(path, colour, size=(6, 4), mode="RGB"):
    path.parent.mkdir(exist_ok=True)
    Image.new(mode, size, colour).save(path)


def test_subfolders_are_classes_in_order(tmp_path):
    save(tmp_path / "shoe" / "1.png", (0, 0, 255))
    save(tmp_path / "bag" / "2.jpg", (255, 0, 0))
    save(tmp_path / "bag" / "1.png", (0, 255, 0))
    (tmp_path / "bag" / "notes.txt").write_text("not a picture")
    dataset = folder.read(tmp_path, (3, 4, 6))
    assert dataset.labels.tolist() == [0, 0, 1]
    assert dataset.images[0, :, 0, 0].tolist() == [0, 255, 0]
    assert dataset.images[2, :, 3, 5].tolist() == [0, 0, 255]
    assert dataset.images.flags.c_contiguous


def test_classes_must_not_shift(tmp_path):
    save(tmp_path / "a" / "1.png", (0, 0, 255))
    save(tmp_path / "c" / "1.png", (0, 0, 255))
    (tmp_path / "b").mkdir()
    with pytest.raises(TilewrightError, match="b holds no pictures"):
        folder.read(tmp_path, (3, 4, 6))
    (tmp_path / "b").rmdir()
    save(tmp_path / "loose.png", (0, 0, 255))
    with pytest.raises(TilewrightError, match="there are pictures beside"):
        folder.read(tmp_path, (3, 4, 6))


def test_pictures_of_more_than_8_bits_are_refused(tmp_path):
    Image.fromarray(np.arange(16, dtype=np.uint16).reshape(4, 4) * 4096).save(tmp_path / "a.png")
    with pytest.raises(TilewrightError, match=r"a\.png: more than 8 bits"):
        folder.read(tmp_path, (1, 4, 4))


def test_pictures_without_classes_have_no_labels(tmp_path):
    save(tmp_path / "a.png", 255, size=(9, 9), mode="L")
    dataset = folder.read(tmp_path, (1, 4, 6))
    assert dataset.labels is None
    assert dataset.images.shape == (1, 1, 4, 6)
    assert (dataset.images == 255).all()


def test_a_damaged_picture_is_named(tmp_path):
    save(tmp_path / "a.png", (1, 2, 3), size=(64, 64))
    content = (tmp_path / "a.png").read_bytes()
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    with pytest.raises(TilewrightError, match=r"a\.png: not a readable picture"):
        folder.read(tmp_path, (3, 4, 4))


def test_a_picture_that_claims_a_monstrous_size_is_refused(tmp_path):
    save(tmp_path / "a.bmp", (1, 2, 3))
    content = bytearray((tmp_path / "a.bmp").read_bytes())
    content[18:26] = (60_000).to_bytes(4, "little") * 2
    (tmp_path / "a.bmp").write_bytes(content)
    with pytest.raises(TilewrightError, match=r"a\.bmp: not a readable picture"):
        folder.read(tmp_path, (3, 4, 4))


def test_other_channel_counts_are_refused(tmp_path):
    save(tmp_path / "a.png", (1, 2, 3))
    with pytest.raises(TilewrightError, match="1 or 3 channels, the network 2"):
        folder.read(tmp_path, (2, 4, 4))


@given(data=st.data())
def test_any_damage_is_refused_or_harmless(data, tmp_path_factory):
    place = tmp_path_factory.mktemp("fuzz")
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(pixels).save(place / "a.png")
    content = bytearray((place / "a.png").read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (place / "a.png").write_bytes(bytes(content))
    try:
        assert folder.read(place, (3, 4, 4)).images.shape == (1, 3, 4, 4)
    except TilewrightError as error:
        assert "a.png" in str(error)
