"""Pooling as a kernel of its own.

Within a stack a picture comes into shared memory first, and a block waits for it: 64 channels of
48 x 48 under windows of 3 x 3 took 220 us so, of 1,000 images in fp16 (H200, 2026-11-19), where
moving their words takes 90.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.fuse.cuda.arithmetic import Arithmetic
from tilewright.fuse.cuda.operations import Operation
from tilewright.fuse.cuda.passing import Passing, whole_words
from tilewright.model.layers import Pooling

LANES = 128  # of a multiprocessor
INSTRUCTIONS = 5  # of a lane, for a word under one place of a window; chosen
SIDE_BY_SIDE = 4  # results of a thread, where windows that are next to each other share most
LARGEST = 5  # side of such a window


@dataclass(frozen=True)
class Pools(Passing):
    @property
    def turns(self) -> int:
        return self.run

    @property
    def layer(self) -> Pooling:
        layer = self.operation.stages[0].layer
        assert isinstance(layer, Pooling)
        return layer

    @property
    def run(self) -> int:
        """Results of a thread, beside each other."""
        across, size = self.layer.stride[1], self.layer.size[1]
        beside = SIDE_BY_SIDE if across == 1 else SIDE_BY_SIDE // 2
        return min(beside, self.operation.result[2]) if across < size <= LARGEST else 1

    @property
    def columns(self) -> int:
        """Of places, that their windows meet."""
        return (self.run - 1) * self.layer.stride[1] + self.layer.size[1]

    @property
    def busy_cycles(self) -> float:
        places = self.columns * self.layer.size[0] / self.run
        return self.result_words * places * INSTRUCTIONS / LANES


def _meet_the_picture(operation: Operation) -> bool:
    """Whether all windows do."""
    layer = operation.stages[0].layer
    assert isinstance(layer, Pooling)
    return all(
        layer.padding[axis] < layer.size[axis]
        and (operation.result[1 + axis] - 1) * layer.stride[axis] - layer.padding[axis]
        < operation.source[1 + axis]
        for axis in range(2)
    )


def pools(arithmetic: Arithmetic, operation: Operation) -> Pools | None:
    """The plan, if there is such a kernel."""
    can_be = (
        operation.kind == "each"
        and operation.pool != ""
        and isinstance(operation.stages[0].layer, Pooling)
        and whole_words(arithmetic, operation)
        and _meet_the_picture(operation)
    )
    return Pools(arithmetic, operation) if can_be else None
