"""One server a class, one judging a device."""

from __future__ import annotations

import threading

import pytest

from tests.classroom.made import KERNEL, NOW, class_folder
from tilewright.classroom.locks import device_turn, opened
from tilewright.errors import TilewrightError
from tilewright.runtime.device import OPENCL, Device


def test_of_two_servers_the_second_is_refused_until_the_first_ends(tmp_path):
    folder = class_folder(tmp_path / "class")
    with opened(folder) as (course, store):
        number = store.hand_in("anna", course.tasks["first"], KERNEL, True, NOW)
        store.take("w", {"opencl"})
        with pytest.raises(TilewrightError, match="has a server already"), opened(folder):
            pass
        assert store.submission(number).state == "judging"  # nothing was taken from it
    with opened(folder) as (_, store):
        assert store.submission(number).state == "waiting"
    assert (folder / "state").stat().st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    folder = class_folder(tmp_path / "class")
    (folder / "state").write_text("a file")
    with pytest.raises(TilewrightError, match=r"^cannot write .*server\.lock: "), opened(folder):
        pass


def test_a_device_is_one_judgings_at_a_time_and_others_wait():
    done: list[str] = []

    def judge() -> None:
        with device_turn(Device("opencl", 0)):
            done.append("other")

    with device_turn(OPENCL), device_turn(Device("cuda")):
        other = threading.Thread(target=judge)
        other.start()
        other.join(0.2)
        done.append("first")
    other.join()
    assert done == ["first", "other"]
