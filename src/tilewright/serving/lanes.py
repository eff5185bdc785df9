"""Calls that overlap: each has a lane, with memory between kernels that no other works in.

A lane is taken for the time that it takes to launch, and given back. Whoever takes it next works on
the same stream, and so after those before it, as far as the GPU is concerned. No lock is held: two
threads on one stream have two lanes. On a stream that is captured a call has a lane for ever: the
caller's graph works in it whenever it is launched, and on any stream. A network of one kernel needs
no memory between kernels; with many streams they share its lanes, which then make no graphs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from threading import RLock, local
from typing import Any, NamedTuple

from tilewright.fuse.cuda.run import FusedNetwork
from tilewright.model.layers import Shape
from tilewright.model.network import Network
from tilewright.serving.again import DIFFERENT, Again
from tilewright.serving.asked import Asked
from tilewright.serving.at_once import CAPTURED, ELSEWHERE, IMAGES, OFTEN, OUTPUTS
from tilewright.serving.card import Card
from tilewright.serving.gpu_arrays import Facts, Kind
from tilewright.serving.launches import Inside, Launches, Noting, Outcome

# Handles that the driver knows by their number: the default stream, which cannot be captured, and
# a default stream of each thread, which is another one for each thread.
DEFAULT_STREAMS = (0, 1)
STREAM_OF_THREAD = 2
NOTHING_LAUNCHED = (CAPTURED, ELSEWHERE, DIFFERENT)
# Streams that have lanes of their own, if their memory is not the reason for it.
MOST_STREAMS = 64
# Sizes of batches that a lane has launches ready for; with more it forgets them all.
MOST_READY = 1000


class _Thread(local):
    """What a thread is known by: numbers that Python gives are given again when it has ended."""

    def __init__(self) -> None:
        self.name = object()


THREAD = _Thread()


class Like(NamedTuple):
    """What a call was right with: images as they are held, and outputs, what they say, and of their
    memory the bytes and what its address must be a multiple of."""

    kind: Kind
    images: Any
    facts: Facts
    memory: tuple[int, int]
    out_kind: Kind
    out: Any
    out_facts: Facts
    out_memory: tuple[int, int]
    results: Shape


class Use(NamedTuple):
    """What launches of a lane have to do: ask whether the stream is captured, make graphs."""

    asks: bool
    replays: bool


ON_DEFAULT, ON_STREAM, ANYWHERE = Use(False, True), Use(True, True), Use(False, False)


class Lane:
    """Memory between kernels for some number of images, and launches that work in it."""

    def __init__(
        self, card: Card, network: Network, fused: FusedNetwork, images: int, use: Use
    ) -> None:
        self.card, self.network = card, network
        self.noting = Noting(card)
        self.fused = fused.beside(self.noting)
        self.use = use
        self.ready: dict[int, Launches] = {}
        self.known: dict[tuple[Launches, Kind], Again] = {}
        self.last: Again | Asked | None = None
        self._note(images, True)
        self.capacity = images if self.noting.allocated else math.inf

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
        kind, out_kind, memory, out_memory = like.kind, like.out_kind, like.memory, like.out_memory
        if not kind.tell or kind is not out_kind:
            given, taken = (kind, like.facts, *memory), (out_kind, like.out_facts, *out_memory)
            self.last = Asked(launches, given, taken, type(like.out), like.results)
            return
        key = launches, kind
        self.last = self.known.get(key)
        if self.last is None:
            images, outputs = (like.images, *memory), (like.out, *out_memory)
            self.last = self.known[key] = Again(launches, kind, images, outputs)

    def make_graph(self, launches: Launches) -> None:
        """For calls with the same memory as the last ones."""
        with BUILDING, self.card.preparing():
            launches.make_graph()

    def _note(self, count: int, pixels: bool) -> Launches:
        network, noting = self.network, self.noting
        noting.noted = []
        size = (count, *network.input.shape)
        self.fused(
            noting.place(IMAGES, size, "u1" if pixels else "f4"),
            noting.place(OUTPUTS, (count, *network.output_shape), "f4"),
        )
        return Launches(self.card, noting.noted, self.use.asks, self.use.replays)


# What is compiled is compiled once, however many threads need it.
BUILDING = RLock()


class Lanes:
    """All lanes of a network. They are kept as long as it is: a caller's graph may hold them."""

    def __init__(
        self, card: Card, network: Network, fused: FusedNetwork, batch: int | None
    ) -> None:
        self.card, self.network, self.fused, self.batch = card, network, fused, batch
        self.all: list[Lane] = []
        first = self._new(1, ON_DEFAULT)
        self.anywhere = first.capacity == math.inf
        self.free: dict[Hashable, list[Lane]] = {0: [first]}  # by their streams

    def again(self, kind: Kind, held: Any, out: Any, stream: int, given: int | None) -> Any:
        """Outputs, launched as the last call on the stream was; None if these arrays differ.

        Without `out` there will be a new one for the stream that was given, if one was.
        """
        if not (free := self.free.get(stream)):
            return None
        try:
            lane = free.pop()
        except IndexError:  # another thread was quicker
            return None
        try:
            if (last := lane.last) is None or last.kind is not kind:
                return None
            if type(out) is last.arrays:  # most calls of servers: nothing is asked from Python
                if kind.gradients and (held.requires_grad or out.requires_grad):
                    return None
                if not (error := last.launch(held, out, stream)):
                    return out
                done = Outcome(error, out)
            else:
                done = last(held, out, stream, given)
                if type(done) is not Outcome:
                    return done
            if done.error == OFTEN:
                lane.make_graph(last.launches)
                return done.out
        finally:
            free.append(lane)
        if done.error in NOTHING_LAUNCHED:
            return None
        raise self.card.driver.fault(done.error)

    def launch(
        self, count: int, pixels: bool, images: int, outputs: int, stream: int,
        like: Like | None = None, inside: Inside | None = None,
    ) -> None:  # fmt: skip
        """Launch a batch whose images and outputs have these addresses, from any thread.

        What is like it may be launched by `again`; `inside` is for `Launches`.
        """
        free, use = self._of(stream)
        try:
            lane = free.pop()
        except IndexError:
            lane = self._new(count, use)
        try:
            if lane.capacity < count:  # those outgrown take no more than it, all together
                lane = self._new(count, use)
            launches = lane.ready.get(2 * count + pixels) or lane.prepare(count, pixels)
            error = launches(images, outputs, stream, inside)
            if error == OFTEN:
                lane.make_graph(launches)
            elif error:
                given = images, outputs, stream, inside
                self._elsewhere(error, launches, count, pixels, given)
            if like is not None:
                lane.remember(launches, like)
        finally:
            free.append(lane)

    def _elsewhere(
        self,
        error: int,
        launches: Launches,
        count: int,
        pixels: bool,
        given: tuple[int, int, int, Inside | None],
    ) -> None:
        """Where the thread must be told of the GPU first, or a graph needs a lane to itself."""
        driver = self.card.driver
        with driver.inside():
            if error == ELSEWHERE:
                error = launches(*given)
            if error == CAPTURED:
                error = self._new(count, ANYWHERE).prepare(count, pixels)(*given)
        if error not in (0, OFTEN):  # the next call will be enough, too
            raise driver.fault(error)

    def _of(self, stream: int) -> tuple[list[Lane], Use]:
        """Free lanes for a stream, and what they are used for."""
        free = self.free.get(stream)
        if free is None:
            if self.anywhere and len(self.free) >= MOST_STREAMS:
                return self.free.setdefault(ANYWHERE, []), ANYWHERE
            free = self.free.setdefault(THREAD.name if stream == STREAM_OF_THREAD else stream, [])
        return free, ON_DEFAULT if stream in DEFAULT_STREAMS else ON_STREAM

    def _new(self, count: int, use: Use) -> Lane:
        images = self.batch or 1 << (count - 1).bit_length()
        with BUILDING, self.card.preparing():
            lane = Lane(self.card, self.network, self.fused, images, use)
            self.all.append(lane)
        return lane
