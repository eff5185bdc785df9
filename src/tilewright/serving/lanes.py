"""Calls that overlap: each has a lane, with memory between kernels that no other works in.

A lane is taken for the time that it takes to launch, and given back. Whoever takes it next works on
the same stream, and so after those before it, as far as the GPU is concerned. No lock is held: two
threads on one stream have two lanes. A network of one kernel needs no memory between kernels; its
lanes are good for any stream.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from threading import RLock, local

from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.model.network import Network
from tilewright.serving.card import Card
from tilewright.serving.driver import WrongContext
from tilewright.serving.launches import IMAGES, OUTPUTS, Launches, Noting

# Handles that the driver knows by their number: the default stream, which cannot be captured, and
# a default stream of each thread, which is another one for each thread.
DEFAULT_STREAMS = (0, 1)
STREAM_OF_THREAD = 2
# Sizes of batches that a lane has launches ready for; with more it forgets them all.
MOST_READY = 1000


class _Thread(local):
    """What a thread is known by: numbers that Python gives are given again when it has ended."""

    def __init__(self) -> None:
        self.name = object()


THREAD = _Thread()


class Lane:
    """Memory between kernels for some number of images, and launches that work in it."""

    def __init__(self, card: Card, network: Network, fused: FusedNetwork, images: int) -> None:
        self.card, self.network = card, network
        self.noting = Noting(card)
        self.fused = fused.beside(self.noting)
        self.ready: dict[int, Launches] = {}
        self._note(images, True)
        self.capacity = images if self.noting.allocated else math.inf

    def prepare(self, count: int, pixels: bool) -> Launches:
        """What is to be launched for a batch, from then on under 2 * count + pixels."""
        with BUILDING, self.card.preparing():
            if len(self.ready) >= MOST_READY:
                self.ready.clear()
            launches = self.ready[2 * count + pixels] = self._note(count, pixels)
        return launches

    def _note(self, count: int, pixels: bool) -> Launches:
        network, noting = self.network, self.noting
        noting.noted = []
        size = (count, *network.input.shape)
        self.fused(
            noting.place(IMAGES, size, "u1" if pixels else "f4"),
            noting.place(OUTPUTS, (count, *network.output_shape), "f4"),
        )
        return Launches(self.card, noting.noted)


# What is compiled is compiled once, however many threads need it.
BUILDING = RLock()


class Lanes:
    """All lanes of a network. They are kept as long as it is: a caller's graph may hold them."""

    def __init__(
        self, card: Card, network: Network, fused: FusedNetwork, batch: int | None
    ) -> None:
        self.card, self.network, self.fused, self.batch = card, network, fused, batch
        self.all: list[Lane] = []
        first = self._new(1)
        self.shared = first.capacity == math.inf
        self.anyones = [first]
        self.free: dict[Hashable, list[Lane]] = {0: [first]}  # by their streams

    def launch(self, count: int, pixels: bool, images: int, outputs: int, stream: int) -> None:
        """Launch a batch whose images and outputs have these addresses, from any thread."""
        free = self.anyones if self.shared else self._of(stream)
        try:
            lane = free.pop()
        except IndexError:
            lane = self._new(count)
        try:
            if lane.capacity < count:
                lane = self._new(count)  # those outgrown take no more than it, all together
            launches = lane.ready.get(2 * count + pixels) or lane.prepare(count, pixels)
            try:
                launches(images, outputs, stream)
            except WrongContext:
                with self.card.driver.inside():
                    launches(images, outputs, stream)
        finally:
            free.append(lane)

    def _of(self, stream: int) -> list[Lane]:
        """Lanes whose work is on a stream; none that are used again while it is captured.

        A graph works in its lane whenever it is launched, and on any stream.
        """
        if stream not in DEFAULT_STREAMS and self._is_captured(stream):
            return []
        return self.free.setdefault(THREAD.name if stream == STREAM_OF_THREAD else stream, [])

    def _is_captured(self, stream: int) -> bool:
        driver = self.card.driver
        try:
            return driver.is_captured(stream)
        except WrongContext:
            with driver.inside():
                return driver.is_captured(stream)

    def _new(self, count: int) -> Lane:
        images = self.batch or 1 << (count - 1).bit_length()
        with BUILDING, self.card.preparing():
            lane = Lane(self.card, self.network, self.fused, images)
            self.all.append(lane)
        return lane
