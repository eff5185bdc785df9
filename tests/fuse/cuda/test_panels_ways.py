"""Ways to divide fully connected layers of many images: each can be built, and which is taken."""

from __future__ import annotations

import math

import pytest

from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.panels_ways import WAYS, Many, fastest

PROCESSORS = 132
SHARED_BYTES = HOPPER.shared_bytes - 1024  # less what barriers take


@pytest.mark.parametrize("tensor, how", [
    (tensor, how) for tensor, ways in WAYS.items() for how in ways
])  # fmt: skip
def test_a_way_can_be_built(tensor: bool, how: Many) -> None:
    """What `panels_many.cuh` needs: whole groups, room for sums, and a share of them for each."""
    threads, shares = how.threads(tensor), how.splits * how.parts
    assert threads % 128 == 0 and threads <= 1024 and how.bytes * how.blocks <= SHARED_BYTES
    assert (4 if tensor else 8) % how.splits == 0  # steps of a turn, or pieces
    assert how.wide % 8 == 0 and (how.wide // 8 if tensor else 8) % shares == 0
    assert tensor or how.wide // shares % 4 == 0  # sums are moved in fours
    assert 256 * how.wide * how.bands * how.splits <= how.bytes or shares == 1
    assert how.bands % how.tall == 0 and (how.tall == 1 or (tensor and shares == 1))
    assert how.parts == 1 or how.across == 1
    # What those that add up and those that fetch have when registers have changed hands.
    held = how.registers(tensor)
    assert (held * (threads - 128) + 24 * 128) * how.blocks <= 65536 and held % 8 == 0


@pytest.mark.parametrize("tensor", [True, False])
def test_multiprocessors_have_the_same_to_do(tensor: bool) -> None:
    how = fastest(tensor, 10_000, 512, 13, PROCESSORS)
    assert math.prod(how.grid(10_000, 512)) == PROCESSORS
    how = fastest(tensor, 1000, 512, 13, PROCESSORS)
    assert 120 <= math.prod(how.grid(1000, 512)) <= PROCESSORS


def test_a_sum_has_a_turn_for_every_part() -> None:
    assert fastest(True, 256, 512, 1, PROCESSORS).parts == 1
