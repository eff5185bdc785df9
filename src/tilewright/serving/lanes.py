"""Calls that overlap: each has a lane, with memory between kernels that no other works in.

A lane is taken for the time that it takes to launch, and given back. Whoever takes it next works on
the same stream, and so after those before it, as far as the GPU is concerned. No lock is held: two
threads on one stream have two lanes. A network of one kernel needs no memory between kernels; its
lanes are good for any stream. On a stream that is captured a call has a lane for ever: the caller's
graph works in it whenever it is launched, and on any stream.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from contextlib import nullcontext
from threading import RLock, local
from typing import Any

from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.model.network import Network
from tilewright.serving.again import DIFFERENT, Again, Like
from tilewright.serving.at_once import CAPTURED, IMAGES, OUTPUTS
from tilewright.serving.card import Card
from tilewright.serving.driver import NO_CONTEXT, OTHER_CONTEXT
from tilewright.serving.launches import Launches, Noting

# Handles that the driver knows by their number: the default stream, which cannot be captured, and
# a default stream of each thread, which is another one for each thread.
DEFAULT_STREAMS = (0, 1)
STREAM_OF_THREAD = 2
NOTHING_LAUNCHED = (DIFFERENT, CAPTURED, NO_CONTEXT, OTHER_CONTEXT)
# Sizes of batches that a lane has launches ready for; with more it forgets them all.
MOST_READY = 1000


class _Thread(local):
    """What a thread is known by: numbers that Python gives are given again when it has ended."""

    def __init__(self) -> None:
        self.name = object()


THREAD = _Thread()


class Lane:
    """Memory between kernels for some number of images, and launches that work in it."""

    def __init__(
        self, card: Card, network: Network, fused: FusedNetwork, images: int, asks: bool
    ) -> None:
        self.card, self.network = card, network
        self.noting = Noting(card)
        self.fused = fused.beside(self.noting)
        self.asks = False
        self.ready: dict[int, Launches] = {}
        self.known: dict[tuple[Launches, type], Again] = {}
        self.last: Again | None = None
        self._note(images, True)
        self.capacity = images if self.noting.allocated else math.inf
        self.asks = asks and self.noting.allocated

    def prepare(self, count: int, pixels: bool) -> Launches:
        """What is to be launched for a batch, from then on under 2 * count + pixels."""
        with BUILDING, self.card.preparing():
            if len(self.ready) >= MOST_READY:
                self.ready.clear()
                self.known.clear()
            launches = self.ready[2 * count + pixels] = self._note(count, pixels)
        return launches

    def remember(self, launches: Launches, like: Like) -> None:
        """Have the next call with such arrays launched at once."""
        if launches.shifted:
            return  # other addresses are to be filled in
        key = launches, type(like.images)
        self.last = self.known.get(key)
        if self.last is None:
            self.last = self.known[key] = Again(launches, like)

    def _note(self, count: int, pixels: bool) -> Launches:
        network, noting = self.network, self.noting
        noting.noted = []
        size = (count, *network.input.shape)
        self.fused(
            noting.place(IMAGES, size, "u1" if pixels else "f4"),
            noting.place(OUTPUTS, (count, *network.output_shape), "f4"),
        )
        return Launches(self.card, noting.noted, self.asks)


# What is compiled is compiled once, however many threads need it.
BUILDING = RLock()


class Lanes:
    """All lanes of a network. They are kept as long as it is: a caller's graph may hold them."""

    def __init__(
        self, card: Card, network: Network, fused: FusedNetwork, batch: int | None
    ) -> None:
        self.card, self.network, self.fused, self.batch = card, network, fused, batch
        self.all: list[Lane] = []
        first = self._new(1, asks=False)
        self.anyones = [first] if first.capacity == math.inf else None
        self.free: dict[Hashable, list[Lane]] = {0: [first]}  # by their streams

    def again(self, images: Any, out: Any, stream: int) -> bool:
        """Launch as the last call on the stream was, if these arrays of one type are alike."""
        free = self.free.get(stream) if self.anyones is None else self.anyones
        if not free:
            return False
        try:
            lane = free.pop()
        except IndexError:  # another thread was quicker
            return False
        try:
            if (last := lane.last) is None or last.arrays is not type(images):
                return False
            if not (error := last.launch(images, out, stream)):
                return True
        finally:
            free.append(lane)
        if error in NOTHING_LAUNCHED:
            return False
        raise self.card.driver.fault(error)

    def launch(
        self, count: int, pixels: bool, images: int, outputs: int, stream: int,
        like: Like | None = None,
    ) -> None:  # fmt: skip
        """Launch a batch whose images and outputs have these addresses, from any thread."""
        free = self.anyones
        if free is None and (free := self.free.get(stream)) is None:
            free = self.free.setdefault(THREAD.name if stream == STREAM_OF_THREAD else stream, [])
        try:
            lane = free.pop()
        except IndexError:
            lane = self._new(count, stream not in DEFAULT_STREAMS)
        try:
            if lane.capacity < count:  # those outgrown take no more than it, all together
                lane = self._new(count, lane.asks)
            launches = lane.ready.get(2 * count + pixels) or lane.prepare(count, pixels)
            if error := launches(images, outputs, stream):
                self._elsewhere(error, launches, count, pixels, (images, outputs, stream))
            elif like is not None:
                lane.remember(launches, like)
        finally:
            free.append(lane)

    def _elsewhere(
        self, error: int, launches: Launches, count: int, pixels: bool, given: tuple[int, int, int]
    ) -> None:
        """Where the thread must be told of the GPU first, or a graph needs a lane to itself."""
        driver = self.card.driver
        wrong = error in (NO_CONTEXT, OTHER_CONTEXT)
        with driver.inside() if wrong else nullcontext():
            if wrong:
                error = launches(*given)
            if error == CAPTURED:
                error = self._new(count, asks=False).prepare(count, pixels)(*given)
        if error:
            raise driver.fault(error)

    def _new(self, count: int, asks: bool) -> Lane:
        images = self.batch or 1 << (count - 1).bit_length()
        with BUILDING, self.card.preparing():
            lane = Lane(self.card, self.network, self.fused, images, asks)
            self.all.append(lane)
        return lane
