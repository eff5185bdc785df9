"""Launches made ready: what a network's kernels take for a size of batch, as C values.

The network is called once on places that stand for images and outputs, through a runtime that
only notes. What it would have launched is kept; to launch it is then to fill in two addresses and a
stream.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from ctypes import c_void_p
from typing import Any
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

# Calls with the same memory as the one before, until there is a graph for them.
ENOUGH = 3
Inside = Callable[[c_void_p], int]
Noted = tuple[GpuKernel, Grid, Sequence[Any]]


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
    `replays`: what comes again with the same memory becomes a graph of the driver's.
    """

    def __init__(self, card: Card, noted: Sequence[Noted], asks: bool, replays: bool) -> None:
        given = [arguments for _, _, arguments in noted]
        free = end = at_once.HEAD + at_once.LAUNCH_WORDS * len(noted)
        self.words = words = array("Q", bytes(8 * (end + 2 * sum(map(len, given)))))
        self.shifted: list[tuple[int, int, int]] = []  # words, and what they are: another's, and on
        self.card, driver = card, card.driver
        start, _ = words.buffer_info()
        words[at_once.CONTEXT], words[at_once.CURRENT] = driver.context, driver.current
        words[at_once.ASK] = driver.ask if asks else 0
        words[at_once.LAUNCH], words[at_once.REPLAY] = driver.launch, driver.replay
        words[at_once.END] = start + 8 * end
        words[at_once.ENOUGH] = ENOUGH if replays else 0
        for index, (kernel, grid, arguments) in enumerate(noted):
            sizes = (*grid, *kernel.block, kernel.shared_bytes, 0)
            pairs = (low | high << 32 for low, high in zip(sizes[::2], sizes[1::2], strict=True))
            launch = (card.function(kernel), *pairs, start + 8 * free)
            first = at_once.HEAD + at_once.LAUNCH_WORDS * index
            words[first : first + at_once.LAUNCH_WORDS] = array("Q", launch)
            values = free + len(arguments)
            for number, argument in enumerate(arguments):
                words[free + number] = start + 8 * self._place(card, argument, values + number)
            free = values + len(arguments)
        self.block, self.launch = c_void_p(start), at_once.launch_all()
        self.graphs: list[finalize[[int], Launches]] = []  # each forgets one

    def __call__(self, images: int, outputs: int, stream: int, inside: Inside | None = None) -> int:
        """Launch all of it, with these addresses, on a stream; what the function gives back.

        `inside`: by another function, which is given the block.
        """
        words = self.words
        words[STREAM], words[IMAGES], words[OUTPUTS] = stream, images, outputs
        for place, base, offset in self.shifted:
            words[place] = words[base] + offset
        return self.launch(self.block) if inside is None else inside(self.block)

    def make_graph(self) -> None:
        """Of the launches as they were just now."""
        words, driver = self.words, self.card.driver
        place = len(self.graphs) % at_once.GRAPHS
        first = at_once.FIRST_GRAPH + at_once.GRAPH_WORDS * place
        asked, words[at_once.ASK] = words[at_once.ASK], 0
        words[STREAM], words[at_once.REPEATS] = self.card.aside(), 0
        try:
            made = driver.graph(words[STREAM], lambda: self.launch(self.block))
        finally:
            words[at_once.ASK] = asked
        words[first : first + 3] = array("Q", (made, words[IMAGES], words[OUTPUTS]))
        forget = finalize(self, driver.forget, made)
        forget.atexit = False
        if len(self.graphs) >= at_once.GRAPHS:
            self.graphs[-at_once.GRAPHS]()
            # Whoever changes his memory now and then must not wait for a graph each time.
            words[at_once.ENOUGH] *= 2
        self.graphs.append(forget)

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
