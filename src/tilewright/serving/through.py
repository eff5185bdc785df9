"""From the host's memory through a GPU and back: by pinned memory, on a stream of one's own."""

from __future__ import annotations

import math
from array import array
from ctypes import c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.arrays import address
from tilewright.model.network import Network
from tilewright.serving import passage as code
from tilewright.serving.card import Card
from tilewright.serving.lanes import BUILDING, Lanes

# Images that go through at once; while they do, the next are copied into pinned memory.
PIECE_BYTES = 8 * 2**20


class Passage:
    """Memory on both sides for some number of images, and a stream between them."""

    def __init__(self, card: Card, network: Network, images: int) -> None:
        self.card, self.capacity = card, images
        values = math.prod(network.input.shape)
        results = images * math.prod(network.output_shape)
        with BUILDING, card.preparing():
            self.stream = card.new_stream()
            self.device_in = card.allocate((4 * values * images,), np.uint8)
            self.device_out = card.allocate((results,))
            self.host_in = card.pinned(4 * values * images)
            self.host_out = card.pinned(4 * results).view(np.float32)
        self.images, self.outputs = card.address(self.device_in), card.address(self.device_out)
        self.words = words = array("Q", bytes(8 * code.WORDS))
        words[code.SEND], words[code.FETCH] = card.driver.send, card.driver.fetch
        words[code.SENT], words[code.PIXELS] = self.images, address(self.host_in)
        words[code.FETCHED], words[code.RESULTS] = address(self.host_out), self.outputs
        self.place, self.function = c_void_p(words.buffer_info()[0]), code.pass_through()

    def begin(
        self, lanes: Lanes, images: NDArray[Any], outputs: int, stream: int | None, wait: bool
    ) -> None:
        """Send images and have them computed, to so many bytes of outputs, and fetch these."""
        words, on = self.words, self.stream if stream is None else stream
        self.host_in[: images.nbytes].view(images.dtype)[:] = images.reshape(-1)
        words[code.SENT_BYTES], words[code.FETCHED_BYTES] = images.nbytes, outputs
        words[code.WAIT] = self.card.driver.waiting if wait else 0
        pixels = images.dtype.itemsize == 1
        lanes.launch(len(images), pixels, self.images, self.outputs, on, inside=self._inside)

    def _inside(self, block: c_void_p) -> int:
        self.words[code.BLOCK] = block.value or 0
        return self.function(self.place)

    def take(self, outputs: NDArray[np.float32]) -> None:
        """What was fetched."""
        outputs.reshape(-1)[:] = self.host_out[: outputs.size]


class Through:
    """Everybody's passages: taken for a call and given back when it is over."""

    def __init__(self, card: Card, network: Network, lanes: Lanes) -> None:
        self.card, self.network, self.lanes = card, network, lanes
        self.piece = max(1, PIECE_BYTES // (4 * math.prod(network.input.shape)))
        self.free: list[Passage] = []
        self.all: list[Passage] = []  # one that was interrupted may still be written to

    def __call__(
        self, images: NDArray[Any], outputs: NDArray[np.float32], stream: int | None
    ) -> None:
        """Fill `outputs`."""
        begun: list[tuple[Passage, NDArray[np.float32]]] = []
        alone = len(images) <= self.piece
        with self.card.driver.inside():
            for first in range(0, len(images), self.piece):
                if len(begun) == 2:
                    self._finish(*begun.pop(0), stream, wait=True)
                given = images[first : first + self.piece]
                taken = outputs[first : first + self.piece]
                passage = self._take(len(given))
                passage.begin(self.lanes, given, taken.nbytes, stream, wait=alone)
                begun.append((passage, taken))
            for each in begun:
                self._finish(*each, stream, wait=not alone)

    def _finish(
        self, passage: Passage, outputs: NDArray[np.float32], stream: int | None, wait: bool
    ) -> None:
        if wait:
            self.card.driver.wait(passage.stream if stream is None else stream)
        passage.take(outputs)
        self.free.append(passage)

    def _take(self, count: int) -> Passage:
        try:
            passage = self.free.pop()
        except IndexError:
            passage = None
        if passage is not None and passage.capacity >= count:
            return passage
        if passage is not None:
            self.all.remove(passage)  # too small, and done
        made = Passage(self.card, self.network, min(self.piece, 1 << (count - 1).bit_length()))
        self.all.append(made)
        return made
