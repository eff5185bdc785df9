"""Kernels of one operation without sums, which pass words on from device memory to device memory.

A block of a `stack` takes an image; these take whatever words come next, so that one image keeps
all multiprocessors busy, and many are moved as fast as device memory allows. `behind` puts channels
of several pictures behind each other, `pools` pools, and `arriving` makes words of pixels.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tilewright.fuse.cuda.arithmetic import Arithmetic, Words
from tilewright.fuse.cuda.generations import Generation
from tilewright.fuse.cuda.operations import Form, OfOperation, Operation
from tilewright.fuse.cuda.pictures import plain
from tilewright.fuse.cuda.sums import To, into
from tilewright.model.network import Parameters

THREADS = 256
BLOCKS = 8  # of a multiprocessor
# Than device memory could be by its datasheet: eight poolings of 1,000 images took 1.25 to 1.5
# times as long (`benchmarks/results/2026-11-19-kernels-h200.txt`).
SLOWER = 1.35
# Cycles until a block of few images has read and written. Chosen; with it an image is estimated at
# 2.8 µs, and 1.8 to 2.0 were measured (`benchmarks/results/2026-11-18-kernels-h200.txt`).
WAIT = 2000


@dataclass(frozen=True)
class Passing(OfOperation):
    """A kernel's plan; sizes are words."""

    arithmetic: Arithmetic
    operation: Operation
    threads = THREADS
    shared_bytes = 0
    gives: ClassVar[Form] = "words"

    @property
    def words(self) -> int:
        """Of a pixel that is read."""
        return self.arithmetic.words(self.operation.source[0])

    @property
    def width(self) -> int:
        """That a thread moves at once."""
        return math.gcd(4, self.words)

    @property
    @abstractmethod
    def turns(self) -> int:
        """Of so many words, that a thread has under way at once."""

    @property
    @abstractmethod
    def busy_cycles(self) -> float:
        """Of a multiprocessor, of an image, for anything but moving words."""

    @property
    def result_words(self) -> int:
        """Of an image."""
        channels, height, width = self.operation.result
        return self.arithmetic.words(channels) * height * width

    @property
    def moved_words(self) -> int:
        """Of an image, from device memory and to it."""
        return self.result_words + sum(
            self.arithmetic.words(channels) * height * width
            for channels, height, width in self.operation.shapes
        )

    @property
    def to(self) -> To:
        picture = plain(self.arithmetic, self.operation.result)
        return into(picture, self.arithmetic, self.operation.only_sums).to

    def blocks(self, images: int, processors: int) -> int:
        each = THREADS * self.turns * self.width
        return min(-(-images * self.result_words // each), processors * BLOCKS)

    def parameters(self, given: Parameters) -> Words:
        return np.zeros(0, np.uint32)

    def cycles(self, images: int, gpu: Generation) -> float:
        """About how long a launch takes."""
        return gpu.few.launch + WAIT + images * self._own_cycles(gpu) / gpu.few.processors

    def image_cycles(self, gpu: Generation) -> float:
        """Of a multiprocessor, of one image of many, with what its launch costs."""
        return self._own_cycles(gpu) + gpu.launch_cycles

    def _own_cycles(self, gpu: Generation) -> float:
        return max(SLOWER * self.moved_words / gpu.words_a_cycle, self.busy_cycles)


def whole_words(arithmetic: Arithmetic, operation: Operation) -> bool:
    """Whether kernels before it give words, and those after it take them as they are."""
    return (
        operation.gives == "words"
        and not operation.in_rows
        and all(form == "words" for form in operation.forms)
        and all(channels % arithmetic.per_word == 0 for channels, _, _ in operation.shapes)
    )
