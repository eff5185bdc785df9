"""Launches made ready: what a network's kernels take for a size of batch, as C values.

The network is called once on places that stand for images and outputs, through a runtime that
only notes. What it would have launched is kept; to launch it is then to fill in two addresses and a
stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np
from numpy.typing import DTypeLike

from tilewright.model.layers import Shape
from tilewright.runtime import Buffer, GpuKernel, HostArray
from tilewright.runtime.arrays import Array
from tilewright.runtime.dialect import Grid
from tilewright.serving import at_once
from tilewright.serving.at_once import IMAGES, OUTPUTS, STREAM
from tilewright.serving.card import Card
from tilewright.trace import Cost

# Calls of a size of batch until there is a graph for it.
ENOUGH = 3
Inside = Callable[[c_void_p], int]
Noted = tuple[GpuKernel, Grid, Sequence[Any]]


class Outcome(NamedTuple):
    """Of launches that gave back something else than 0, and the outputs they were for."""

    error: int
    out: Any


class Noting:
    """A runtime that allocates and compiles as any, and launches nothing."""

    def __init__(self, card: Card) -> None:
        self.card, self.limits, self.capability = card, card.limits, card.capability
        self.allocated = False
        self.noted: list[Noted] = []

    def allocate(self, shape: Shape, dtype: DTypeLike = np.float32) -> Any:
        self.allocated = True
        return self.card.allocate(shape, dtype)

    def upload(self, array: HostArray) -> Any:
        self.allocated = True
        return self.card.upload(array)

    def write(self, buffer: Buffer, array: HostArray) -> None:
        raise NotImplementedError("weights are shared: they are not sent again")

    def copy(self, target: Array, source: Array) -> None:
        raise NotImplementedError("kernels alone write where outputs go")

    def compile_text(self, name: str, text: str, threads: int, shared_bytes: int) -> GpuKernel:
        return self.card.compile_text(name, text, threads, shared_bytes)

    def enqueue(
        self,
        kernel: GpuKernel,
        grid: Grid,
        arguments: Sequence[Any],
        layers: tuple[str, ...],
        cost: Cost | None = None,
    ) -> None:
        self.noted.append((kernel, grid, tuple(arguments)))

    def place(self, word: int, shape: Shape, dtype: DTypeLike) -> Array:
        """Something that stands for memory whose address will be in that word of the block."""
        return Array(self, word, shape, np.dtype(dtype))


class Launches:
    """Of one batch, in order, as a block of memory (`at_once.py`). One thread at a time may use it.

    `asks`: nothing is launched on a stream that is captured, unless it is not asked for that.
    `replays`: what comes often enough is launched as a graph of the driver's.
    """

    def __init__(self, card: Card, noted: Sequence[Noted], asks: bool, replays: bool) -> None:
        given = [arguments for _, _, arguments in noted]
        free = end = at_once.HEAD + at_once.LAUNCH_WORDS * len(noted)
        self.words = words = array("Q", bytes(8 * (end + 2 * sum(map(len, given)))))
        self.shifted: list[tuple[int, int, int]] = []  # words, and what they are: another's, and on
        self.card, driver = card, card.driver
        self.start, _ = words.buffer_info()
        words[at_once.CONTEXT], words[at_once.CURRENT] = driver.context, driver.current
        words[at_once.ASK] = driver.ask if asks else 0
        words[at_once.LAUNCH], words[at_once.REPLAY] = driver.launch, driver.replay
        words[at_once.MOVE], words[at_once.END] = driver.move, self.start + 8 * end
        words[at_once.ENOUGH] = ENOUGH if replays else 0
        self.places = range(at_once.HEAD, end, at_once.LAUNCH_WORDS)
        for first, (kernel, grid, arguments) in zip(self.places, noted, strict=True):
            sizes = (*grid, *kernel.block, kernel.shared_bytes, 0)
            pairs = (low | high << 32 for low, high in zip(sizes[::2], sizes[1::2], strict=True))
            launch = array("Q", (card.function(kernel), *pairs, self.start + 8 * free))
            words[first : first + len(launch)] = launch
            words[first + at_once.MOVED_BY] = _moved_by(arguments)
            values = free + len(arguments)
            for number, argument in enumerate(arguments):
                words[free + number] = self.start + 8 * self._place(card, argument, values + number)
            free = values + len(arguments)
        self.launch = at_once.launch_at(self.start)
        # The driver's graph, the images and outputs that it is of, and those made of it to replay.
        self.series: tuple[int, int, int] | None = None
        self.graphs: list[int] = []

    def __call__(self, images: int, outputs: int, stream: int, inside: Inside | None = None) -> int:
        """Launch all of it, with these addresses, on a stream; what the function gives back.

        `inside`: by another function, which is given the block.
        """
        words = self.words
        if inside is not None or self.shifted:
            words[STREAM], words[IMAGES], words[OUTPUTS] = stream, images, outputs
            for place, base, offset in self.shifted:
                words[place] = words[base] + offset
            if inside is not None:
                return inside(c_void_p(self.start))
        return self.launch(images, outputs, stream)

    def make_graph(self) -> None:
        """The next one, of the launches as they were just now or before."""
        words, driver = self.words, self.card.driver
        if self.series is None:
            made, nodes = driver.series([self.start + 8 * place for place in self.places])
            for place, node in zip(self.places, nodes, strict=True):
                words[place + at_once.NODE] = node
            self.series = made, words[IMAGES], words[OUTPUTS]
            finalize(self, driver.forget, made, self.graphs).atexit = False
        series, images, outputs = self.series
        self.graphs.append(driver.graph(series))
        first = at_once.FIRST_GRAPH + at_once.GRAPH_WORDS * words[at_once.NEXT]
        words[first : first + 3] = array("Q", (self.graphs[-1], images, outputs))

    def _place(self, card: Card, argument: Any, own: int) -> int:
        """The word that an argument is in: its own, unless it is where images or outputs begin."""
        if isinstance(argument, Array):
            if argument.offset == 0:
                return int(argument.memory)
            self.shifted.append((own, argument.memory, argument.offset))
        elif isinstance(argument, int):
            self.words[own] = argument
        elif argument is not None:
            self.words[own] = card.address(argument)
        return own


def _moved_by(arguments: Sequence[Any]) -> int:
    """What of a call's memory is among a launch's arguments."""
    found = 0
    for argument in arguments:
        if isinstance(argument, Array):
            found |= at_once.BY_IMAGES if argument.memory == IMAGES else at_once.BY_OUTPUTS
    return found
