from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.data import cifar10
from tilewright.data.dataset import Wanted
from tilewright.errors import TilewrightError


def records(count, seed=0):
    content = np.random.default_rng(seed).integers(0, 256, (count, cifar10.RECORD), np.uint8)
    content[:, 0] %= 10
    return content


def test_a_record_is_label_then_planes(tmp_path):
    content = records(3)
    path = tmp_path / "data_batch_1.bin"
    content.tofile(path)
    dataset = cifar10.read([path])
    assert dataset.labels.tolist() == content[:, 0].tolist()
    assert dataset.shape == (3, 32, 32)
    assert dataset.images[1, 2, 5, 7] == content[1, 1 + 2 * 1024 + 5 * 32 + 7]
    assert dataset.images.flags.c_contiguous


def test_a_folder_gives_its_training_batches_in_order(tmp_path):
    for number, count in ((3, 2), (1, 4)):
        records(count, number).tofile(tmp_path / f"data_batch_{number}.bin")
    records(9).tofile(tmp_path / "test_batch.bin")
    dataset = cifar10.read_folder(tmp_path)
    assert len(dataset) == 6
    np.testing.assert_array_equal(dataset.labels[:4], records(4, 1)[:, 0])
    assert "data_batch_1.bin, data_batch_3.bin" in dataset.source
    (tmp_path / "data_batch_1.bin").unlink()
    (tmp_path / "data_batch_3.bin").unlink()
    assert len(cifar10.read_folder(tmp_path)) == 9


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "0 bytes is not a whole number"),
        (b"\0" * 3072, "3072 bytes"),
        (b"\0" * 3074, "1 and 1 bytes over"),
        (b"\0" * 3073 + b"\x0a" + b"\0" * 3072, "label 10 of image 1 is out of range"),
    ],
)
def test_damage_is_named(tmp_path, content, words):
    path = tmp_path / "test_batch.bin"
    path.write_bytes(content)
    with pytest.raises(TilewrightError, match=r"test_batch\.bin") as error:
        cifar10.read([path])
    assert words in str(error.value)


@given(st.binary(max_size=100), st.integers(0, 2))
def test_any_bytes_are_read_or_refused(tmp_path_factory, extra, whole):
    path = tmp_path_factory.mktemp("fuzz") / "data_batch_1.bin"
    path.write_bytes(records(whole).tobytes() + extra)
    if whole and not extra:
        assert len(cifar10.read([path])) == whole
    else:
        with pytest.raises(TilewrightError):
            cifar10.read([path])


def steps(call):
    """Python's own, those of libraries too."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    usual = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(usual)
    return count


def test_no_loop_goes_over_images(tmp_path):
    """1,500 of them take as many steps as five do."""
    counted = []
    for each in (1, 1, 300):  # the first time something may be looked up for good
        for name in cifar10.TRAINING:
            records(each).tofile(tmp_path / name)
        counted.append(steps(lambda: cifar10.read_folder(tmp_path)))
    assert counted[1] == counted[2] > 0


def test_no_more_is_read_than_wanted(tmp_path):
    """Sizes are known without reading: this file is all hole."""
    with (tmp_path / "data_batch_1.bin").open("wb") as file:
        file.truncate(3073 * 10**7)
    with pytest.raises(TilewrightError, match="take fewer with --images"):
        cifar10.read_folder(tmp_path)
    dataset = cifar10.read_folder(tmp_path, Wanted(images=3))
    assert dataset.images.shape == (3, 3, 32, 32)
    with pytest.raises(TilewrightError, match="but the network takes 1x28x28"):
        cifar10.read_folder(tmp_path, Wanted(shape=(1, 28, 28)))


def test_the_first_images_may_lie_in_several_batches(tmp_path):
    for number in (1, 2, 3):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(bytes([number] + [0] * 3072) * 2)
    dataset = cifar10.read_folder(tmp_path, Wanted(images=3))
    assert dataset.labels.tolist() == [1, 1, 2]
