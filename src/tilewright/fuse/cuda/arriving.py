"""Pixels of many channels as words of pixels, as a kernel of its own.

Wide convolutions in patches copy what lies together in device memory, a pixel's channels, and
images come channel by channel. A stack can read them as they are, but is best where channels are
few: of 200 channels and 128 filters it took 1,834 us in fp32, patches 853 (9 x 9 pixels, 1,000
images, H200, 2026-11-19).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.errors import TilewrightError
from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Operation, with_copy
from tilewright.fuse.cuda.passing import Passing
from tilewright.fuse.cuda.to_do import handed_on, is_large

MANY = 32  # channels: fewer leave most of a patch's chunk empty


@dataclass(frozen=True)
class Arriving(Passing):
    turns = 1
    busy_cycles = 0

    @property
    def moved_words(self) -> int:
        """Pixels are bytes, as a rule."""
        return self.result_words + math.prod(self.operation.source) // 4


def arriving(arithmetic: Arithmetic, operation: Operation) -> Arriving | None:
    """The plan, if there is such a kernel."""
    return Arriving(arithmetic, operation) if makes_words(operation) else None


def makes_words(operation: Operation) -> bool:
    """Whether that is all that it does."""
    return (
        operation.kind == "each"
        and not operation.stages
        and operation.takes == (-1,)
        and operation.gives == "words"
        and not operation.in_rows
    )


def with_arriving(todo: Sequence[Operation], gpu: Generation) -> list[Operation]:
    """The same operations, with one before them that makes words of pixels."""
    if not can_arrive(todo, gpu):
        raise TilewrightError("options.apart: pixels are read by no wide convolution")
    return handed_on(with_copy(todo, 0), gpu)


def can_arrive(todo: Sequence[Operation], gpu: Generation) -> bool:
    """Whether that may be better: the first of them is a wide convolution, and pixels are read by
    no fully connected layer over the batch, which does not take words."""
    first = todo[0]
    wide = first.kind == "sum" and not first.connected and first.source[0] >= MANY
    large = any(-1 in each.takes and is_large(each, gpu) for each in todo)
    return gpu.warpgroups and wide and not large
