"""How many outputs a thread has where filters see one channel each."""

from __future__ import annotations

from tilewright.fuse.cuda.channels import outputs_of_a_thread
from tilewright.model.layers import Convolution


def by_depth(channels: int, kernel: int) -> Convolution:
    return Convolution(channels, kernel, padding=kernel // 2, groups=channels)


def test_a_thread_has_several_outputs_where_all_have_something_to_do() -> None:
    assert outputs_of_a_thread(by_depth(128, 5), (128, 8, 8), 8, 1) == 8
    # Of 5 x 5 positions of 8 channels each of 512 threads has one at most.
    assert outputs_of_a_thread(by_depth(8, 3), (8, 5, 5), 16, 1) == 1


def test_registers_and_code_are_limited() -> None:
    many = (64, 64, 64)
    assert outputs_of_a_thread(by_depth(64, 5), many, 8, 1) == 8
    assert 2 * (outputs_of_a_thread(by_depth(64, 5), many, 16, 2) + 5) + 30 <= 64
    assert outputs_of_a_thread(by_depth(64, 11), many, 8, 1) * 121 <= 400
    assert outputs_of_a_thread(by_depth(64, 31), many, 8, 1) == 1
