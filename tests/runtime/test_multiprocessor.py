from __future__ import annotations

from dataclasses import replace

import pytest

from tilewright.runtime.multiprocessor import MULTIPROCESSORS, REFERENCE, occupancy
from tilewright.runtime.nvrtc import Compiled


def kernel(registers, shared_bytes=0):
    return Compiled(b"", registers, 0, 0, shared_bytes, 0)


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared", "blocks", "share", "limit"),
    [
        (90, 256, 32, 0, 8, 1.0, "threads"),
        (90, 256, 33, 0, 6, 0.75, "registers"),  # a warp gets 1,280 registers, not 1,056
        (90, 256, 64, 0, 4, 0.5, "registers"),
        (90, 256, 32, 48 * 1024, 4, 0.5, "shared memory"),  # 1 KiB more for each block
        (90, 32, 16, 0, 32, 0.5, "blocks"),
        (90, 33, 16, 0, 32, 1.0, "threads"),  # two warps, as for 64 threads
        (75, 256, 32, 32 * 1024, 2, 0.5, "shared memory"),
        (86, 128, 32, 0, 12, 1.0, "threads"),
        (89, 32, 16, 0, 24, 0.5, "blocks"),
        (120, 1024, 40, 0, 1, 2 / 3, "threads"),
        (80, 1024, 64, 0, 1, 0.5, "registers"),
    ],
)
def test_occupancy(architecture, threads, registers, shared, blocks, share, limit):
    found = occupancy(threads, kernel(registers, shared), MULTIPROCESSORS[architecture])
    assert (found.blocks, found.limit) == (blocks, limit)
    assert found.share == pytest.approx(share)


def test_an_architecture_between_two_known_ones_is_like_the_older():
    assert replace(REFERENCE, capability=103).multiprocessor == MULTIPROCESSORS[100]
    assert replace(REFERENCE, capability=70).multiprocessor == MULTIPROCESSORS[75]
    assert REFERENCE.architecture == "sm_90a"
    assert replace(REFERENCE, capability=89).architecture == "sm_89"
