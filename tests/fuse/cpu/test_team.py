"""Threads that help each other: whoever comes, late or never, the result is the same."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tilewright
from tilewright.fuse.cpu.arrays import address, aligned
from tilewright.fuse.cpu.run import FusedNetwork
from tilewright.fuse.cpu.team import team

IMAGES = np.random.default_rng(0).integers(0, 256, (7, 3, 32, 32), np.uint8)


@pytest.fixture(scope="module")
def network():
    return tilewright.load("cifar10")


def test_helpers_awake_or_asleep_give_the_same_bits(network):
    fused = FusedNetwork(network)
    for size in (1, 3, 7):
        expected = fused(IMAGES[:size])
        for pause in [0.0] * 300 + [0.002] * 20:
            time.sleep(pause)
            np.testing.assert_array_equal(fused(IMAGES[:size]), expected)


def test_calls_that_find_the_team_busy_work_alone(network):
    fused = FusedNetwork(network)
    expected = fused(IMAGES[:1])
    with team().busy:
        np.testing.assert_array_equal(fused(IMAGES[:1]), expected)


def test_more_threads_than_cores_share_a_team(network):
    fused = FusedNetwork(network)
    expected = [fused(IMAGES[: n + 1]) for n in range(7)]
    wrong = []

    def call(n):
        for _ in range(50):
            if not np.array_equal(fused(IMAGES[: n + 1]), expected[n]):
                wrong.append(n)

    threads = [threading.Thread(target=call, args=(n,)) for n in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


PROGRAM = """
import os, sys
import numpy as np
if "unplaced" in sys.argv:  # as on a system that places threads itself
    del os.sched_setaffinity, os.sched_getaffinity
import tilewright
if "one" in sys.argv:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
fused = tilewright.compile(tilewright.load("cifar10"))
images = np.zeros((3, 3, 32, 32), np.uint8)
first = fused(images)
if "fork" in sys.argv:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
assert (fused(images) == first).all()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("how", ["one", "fork", "unplaced"])
def test_on_one_core_in_a_child_process_and_unplaced(how):
    """A child has none of its parent's threads: it must start its own, and never wait for them."""
    subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, timeout=60)


def test_addresses():
    values = np.arange(5, dtype=np.float32)
    assert address(values) == values.ctypes.data
    values.flags.writeable = False
    assert address(values) == values.ctypes.data
    assert address(values[:0]) == values[:0].ctypes.data
    assert address(aligned(5, np.float32)) % 64 == 0
