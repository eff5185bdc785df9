"""Channels of several pictures behind each other, as a kernel of its own.

A block of a `stack` takes an image; this one takes whatever words come next, so that one image
keeps all multiprocessors busy, and many are moved as fast as device memory allows.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Form, OfOperation, Operation
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.sums import To, into
from tilewright.model.layers import Concat
from tilewright.model.network import Parameters

THREADS = 256
BLOCKS = 8  # of a multiprocessor
AT_ONCE = 4  # reads of a thread
# Cycles until a block of few images has read and written. Chosen; with it an image is estimated at
# 2.8 µs, and 1.8 to 2.0 were measured (`benchmarks/results/2026-11-18-kernels-h200.txt`).
WAIT = 2000


@dataclass(frozen=True)
class Behind(OfOperation):
    """A kernel's plan; sizes are words of a pixel."""

    arithmetic: Arithmetic
    operation: Operation
    threads = THREADS
    shared_bytes = 0
    gives: ClassVar[Form] = "words"

    @property
    def parts(self) -> tuple[int, ...]:
        """Of each picture."""
        return tuple(self.arithmetic.words(channels) for channels, _, _ in self.operation.shapes)

    @property
    def begins(self) -> tuple[int, ...]:
        """Where each picture begins, and all end."""
        return tuple(itertools.accumulate(self.parts, initial=0))

    @property
    def width(self) -> int:
        """Words that a thread moves at once."""
        return math.gcd(4, *self.parts)

    @property
    def pixels(self) -> int:
        return math.prod(self.operation.result[1:])

    @property
    def result_words(self) -> int:
        return self.begins[-1] * self.pixels

    @property
    def to(self) -> To:
        picture = plain(self.arithmetic, self.operation.result)
        return into(picture, self.arithmetic, self.operation.only_sums).to

    def blocks(self, images: int, processors: int) -> int:
        each = THREADS * AT_ONCE * self.width
        return min(-(-images * self.result_words // each), processors * BLOCKS)

    def parameters(self, given: Parameters) -> Words:
        return np.zeros(0, np.uint32)

    def cycles(self, images: int, gpu: Generation) -> float:
        """About how long a launch takes."""
        moved = 2 * images * self.result_words / gpu.few.processors
        return gpu.few.launch + WAIT + moved / gpu.words_a_cycle

    def image_cycles(self, gpu: Generation) -> float:
        """Of a multiprocessor, of one image of many, with what its launch costs."""
        return 2 * self.result_words / gpu.words_a_cycle + gpu.launch_cycles


def behind(arithmetic: Arithmetic, operation: Operation) -> Behind | None:
    """The plan, if there is such a kernel: whole words, from kernels before to kernels after that
    take them as they are."""
    of_words = (
        operation.kind == "join"
        and isinstance(operation.stages[0].layer, Concat)
        and operation.gives == "words"
        and not operation.in_rows
        and all(form == "words" for form in operation.forms)
        and all(channels % arithmetic.per_word == 0 for channels, _, _ in operation.shapes)
        and all(shape[1:] == operation.result[1:] for shape in operation.shapes)
    )
    return Behind(arithmetic, operation) if of_words else None
