"""Ways to divide fully connected layers of many images: each can be built, and which is taken."""

from __future__ import annotations

import math

import pytest

from tilewright.fuse.cuda.generations import HOPPER
from tilewright.fuse.cuda.panels_ways import CHUNK_BYTES, WAYS, Many, fastest

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
    assert how.wide % 8 == 0 and (how.wide // 8 if tensor else how.each) % shares == 0
    assert shares == 1 or tensor or how.sums(tensor) // shares % 4 == 0  # they are moved in fours
    assert how.each == 8 or not tensor
    results = CHUNK_BYTES * how.bands * how.wide // how.parts if tensor else 0
    assert how.gathered_bytes + results <= how.bytes
    assert how.gathered_bytes == (0 if shares == 1 else 4 * how.outputs * how.wide * how.splits)
    assert how.bands % how.tall == 0 and (how.tall == 1 or (tensor and shares == 1))
    assert how.parts == 1 or how.across == 1
    # What those that add up and those that fetch have when registers have changed hands.
    held = how.registers(tensor)
    assert tensor or 2 * how.sums(tensor) + 4 * (how.each + how.wide // 8) <= held - 8
    assert (held * (threads - 128) + 24 * 128) * how.blocks <= 65536 and held % 8 == 0


@pytest.mark.parametrize("tensor", [True, False])
def test_multiprocessors_have_the_same_to_do(tensor: bool) -> None:
    how = fastest(tensor, 10_000, 512, 13, PROCESSORS)
    blocks = math.prod(how.grid(10_000, 512))
    assert blocks == PROCESSORS if tensor else 0.9 < blocks / PROCESSORS / 2 <= 1
    how = fastest(tensor, 1000, 512, 13, PROCESSORS)
    assert 120 <= math.prod(how.grid(1000, 512)) <= PROCESSORS


@pytest.mark.parametrize("tensor", [True, False])
def test_a_block_has_weights_of_one_panel(tensor: bool) -> None:
    """They come in one copy: a block would wait for what is in another panel for ever."""
    taken = set()
    for outputs in range(10, 530, 10):
        for images in (256, 1000, 4000, 10_000):
            how = fastest(tensor, images, outputs, 254, PROCESSORS)
            taken.add(how.outputs)
            for first in range(0, outputs, how.outputs):
                last = min(first + how.outputs, outputs) - 1
                assert first // 256 == last // 256, (how, outputs)
    assert (192 if tensor else 160) in taken  # which do not divide a panel


def test_a_sum_has_a_turn_for_every_part() -> None:
    assert fastest(True, 256, 512, 1, PROCESSORS).parts == 1
