from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tilewright.data import catalogue, folder
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
    assert dataset.classes == ("bag", "shoe")
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


@pytest.mark.parametrize("shape", [(1, 2, 8), (3, 2, 8)])
@pytest.mark.parametrize("ending", ["png", "pgm"])
def test_of_16_bits_of_grey_the_high_byte_counts(tmp_path, shape, ending):
    values = np.arange(16, dtype=np.uint16).reshape(2, 8) * 4096 + 255
    Image.fromarray(values).save(tmp_path / f"a.{ending}")
    images = folder.read(tmp_path, shape).images
    np.testing.assert_array_equal(images[0], np.broadcast_to(values >> 8, shape))


def test_floating_point_pictures_are_refused(tmp_path):
    (tmp_path / "a.pgm").write_bytes(b"Pf\n2 2\n-1.0\n" + np.ones(4, "<f4").tobytes())
    with pytest.raises(TilewrightError, match=r"a\.pgm: holds floating-point values"):
        folder.read(tmp_path, (1, 2, 2))


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_black(tmp_path, mode):
    """And not the colour that happens to be stored there."""
    pixels = np.full((2, 2, 4), 200, np.uint8)
    pixels[0, :, 3], pixels[1, :, 3] = 0, 255
    picture = Image.fromarray(pixels)
    if mode == "P":
        picture = Image.fromarray(np.array([[0, 0], [1, 1]], np.uint8), "P")
        picture.putpalette([200] * 6)
        picture.save(tmp_path / "a.png", transparency=0)
    else:
        picture.convert(mode).save(tmp_path / "a.png")
    for shape in ((1, 2, 2), (3, 2, 2)):
        images = folder.read(tmp_path, shape).images
        assert (images[0, :, 0] == 0).all()
        assert (images[0, :, 1] == 200).all()


def test_half_transparent_is_half_as_bright(tmp_path):
    save(tmp_path / "a.png", (200, 100, 0, 128), size=(2, 2), mode="RGBA")
    assert folder.read(tmp_path, (3, 2, 2)).images[0, :, 0, 0].tolist() == [100, 50, 0]


def test_a_picture_is_turned_as_its_camera_says(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held on its side
    lying = np.array([[0, 80, 160]], np.uint8)
    Image.fromarray(lying).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(folder.read(tmp_path, (1, 3, 1)).images[0, 0], lying.T)


def test_of_an_animation_the_first_frame_counts(tmp_path):
    frames = [Image.new("L", (2, 2), value) for value in (10, 200)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    assert (folder.read(tmp_path, (1, 2, 2)).images == 10).all()


def test_a_program_named_as_a_picture_is_not_run(tmp_path, monkeypatch):
    """Pillow goes by content, and knows a program that draws PostScript."""
    from PIL import EpsImagePlugin

    def run(*given, **more):
        raise AssertionError("PostScript was run")

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", run)
    (tmp_path / "a.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EOF\n")
    with pytest.raises(TilewrightError, match=r"a\.png: not a readable picture") as error:
        folder.read(tmp_path, (3, 4, 4))
    assert "PostScript" not in str(error.value)


def test_what_is_not_for_people_is_left_out(tmp_path):
    save(tmp_path / "a" / "1.png", (0, 0, 255))
    for name in ("._1.png", ".hidden.png", ".DS_Store", "Thumbs.db", "desktop.ini"):
        (tmp_path / "a" / name).write_bytes(b"no picture")
    (tmp_path / "__MACOSX").mkdir()
    (tmp_path / "__MACOSX" / "1.png").write_bytes(b"no picture")
    (tmp_path / ".thumbnails").mkdir()
    assert len(folder.read(tmp_path, (3, 4, 6))) == 1


def test_an_empty_first_class_is_named_without_a_shape_too(tmp_path):
    (tmp_path / "a").mkdir()
    save(tmp_path / "b" / "1.png", (0, 0, 255))
    with pytest.raises(TilewrightError, match="a holds no pictures"):
        catalogue.open_stored(tmp_path)


def test_links_that_lead_nowhere_are_named(tmp_path):
    save(tmp_path / "a.png", (0, 0, 255))
    (tmp_path / "b.png").symlink_to(tmp_path / "b.png")
    with pytest.raises(TilewrightError, match=r"cannot read .*b\.png"):
        folder.read(tmp_path, (3, 4, 6))
    (tmp_path / "b.png").unlink()
    (tmp_path / "again").symlink_to(tmp_path)
    with pytest.raises(TilewrightError, match="there are pictures beside"):
        folder.read(tmp_path, (3, 4, 6))


def test_only_the_first_pictures_are_opened(tmp_path):
    for name in ("a/1.png", "b/1.png", "b/2.png"):
        save(tmp_path / name, (0, 0, 255))
    (tmp_path / "b" / "2.png").write_bytes(b"damaged")
    dataset = folder.read(tmp_path, (3, 4, 6), images=2)
    assert dataset.labels.tolist() == [0, 1]
    assert "3 pictures, 2 classes" in dataset.source


def test_more_than_fits_is_refused_before_anything_is_opened(tmp_path):
    (tmp_path / "a.png").write_bytes(b"damaged")
    with pytest.raises(TilewrightError, match="take fewer with --images"):
        folder.read(tmp_path, (3, 10**6, 10**6))


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
