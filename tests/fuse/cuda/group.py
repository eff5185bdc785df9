"""A group of threads with its shared memory: how pictures are filled, and their borders emptied."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.fuse.cuda.instructions import FLOAT, halves, rounded_halves
from tests.fuse.cuda.memory import Memory, Mistake, part
from tilewright.fuse.cuda.steps import Border, Fill, Program
from tilewright.model.layers import Pixels

Array = NDArray[Any]


class Group:
    """A block's shared memory with one group's own, and the item that is worked on."""

    def __init__(self, made: Program, parameters: Array, tables: Array) -> None:
        self.made, self.parameters, self.tables = made, parameters, tables
        self.arithmetic = made.arithmetic
        self.own = made.shared_words
        words = made.shared_words + made.group_words
        self.shared = Memory("shared memory", words, own=self.own)
        self.images: Array = np.zeros((0, 0))
        self.others: list[Array] = []  # further inputs
        self.item, self.start = 0, 0  # an image, and the first row of its strip

    def fill(self, step: Fill) -> None:
        y, x = np.divmod(np.arange(step.height * step.width), step.width)
        thread = np.arange(step.height * step.width) % step.threads
        first = step.rows.first(self.start) if step.rows else 0
        if step.form == "words":
            self.fill_words(step, first)
        elif step.form == "threes":
            self.fill_threes(step)
        elif step.form == "fours":
            self.fill_fours(step, y, x, thread)
        elif step.tight:
            pixels = self.pixels(step, first, y, x, thread)
            bits = rounded_halves(pixels).view(np.uint16)
            c = np.arange(step.channels)
            place = (x[:, None] + step.left) * step.channels + c
            row = 2 * (self.own + step.at + y * step.row)[:, None]
            lanes = np.broadcast_to(thread[:, None], bits.shape)
            self.shared.write_halves(row + place, bits, lanes)
            second = place > 0
            at = row + 2 * step.copy + place - 1
            self.shared.write_halves(at[second], bits[second], lanes[second])
        else:
            pixels = self.pixels(step, first, y, x, thread)
            if step.floats:
                words = pixels.view(np.uint32)
            elif self.arithmetic.per_word == 2:
                if step.channels % 2:
                    pixels = np.pad(pixels, ((0, 0), (0, 1)))
                words = halves(pixels[:, 0::2], pixels[:, 1::2])
            else:
                words = self.arithmetic.operands(pixels) if step.round else pixels.view(np.uint32)
            at = self.own + step.at + y * step.row + (x + step.left) * step.pitch
            self.shared.write(at[:, None] + np.arange(words.shape[1]), words, thread[:, None])

    def pixels(self, step: Fill, first: int, y: Array, x: Array, thread: Array) -> Array:
        """Values of pixels, (pixel, channel)."""
        source = first + y
        inside = step.whole | ((source >= 0) & (source < step.source_height))
        plane = step.source_height * step.width
        at = (
            np.where(inside, source * step.width + x, 0)[:, None] + np.arange(step.channels) * plane
        )
        if step.staged is None:
            found = self.image(step, at)
        else:
            words = self.shared.read(self.own + step.staged + at // 4, thread[:, None])
            found = (words >> (at % 4 * 8).astype(np.uint32) & 0xFF).astype(np.uint8)
        c = np.arange(step.channels)
        return np.where(inside[:, None], self.pixel_value(step.pixels, found, c), FLOAT(0))

    def given(self, number: int) -> Array:
        """The item's image of one of the kernel's inputs."""
        of: Array = (self.others[number - 1] if number else self.images)[self.item]
        return of

    def image(self, step: Fill, at: Array) -> Array:
        image = self.given(step.given.number if step.given else 0)
        return part(image, 0, int(at.max()) + 1)[at]

    def pixel_value(self, pixels: Pixels | None, found: Array, channel: Array) -> Array:
        if pixels is None:
            return found.astype(FLOAT)
        scale, shift = (np.array(each, FLOAT) for each in (pixels.scales, pixels.shifts))
        if not pixels.specials:  # rows may be channels
            channel = np.zeros_like(channel)
        wide = found * scale[channel].astype(np.float64) + shift[channel].astype(np.float64)
        return wide.astype(FLOAT)

    def fill_words(self, step: Fill, first: int) -> None:
        i = np.arange(step.height * step.width * step.words)
        y, rest = np.divmod(i, step.width * step.words)
        source = first + y
        inside = step.whole | ((source >= 0) & (source < step.source_height))
        at = np.where(inside, source * step.width * step.words + rest, 0)
        words = np.where(inside, self.image(step, at), np.uint32(0))
        pixel, word = np.divmod(rest, step.words)
        to = self.own + step.at + y * step.row + (step.left + pixel) * step.pitch + word
        apart = self.made.group_words, self.made.shared_words, step.words
        if any(each % step.each for each in apart) or (to[:: step.each] % step.each).any():
            raise Mistake(f"{step.each} words are not written at once")
        self.shared.write(to, words, i // step.each % step.threads)

    def fill_fours(self, step: Fill, y: Array, x: Array, thread: Array) -> None:
        channels, plane = step.channels // 4, 4 * step.height * step.width
        number = np.arange(step.channels)
        position, c = np.divmod(number, channels)
        row, column = 2 * y[:, None] + position // 2, 2 * x[:, None] + position % 2
        at = c * plane + row * 2 * step.width + column
        if step.staged is None:
            found = self.image(step, at)
        else:
            words = self.shared.read(self.own + step.staged + at // 4, thread[:, None])
            found = (words >> (at % 4 * 8).astype(np.uint32) & 0xFF).astype(np.uint8)
        pixels = self.pixel_value(step.pixels, found, c)
        if self.arithmetic.per_word == 2:
            words = halves(pixels[:, 0::2], pixels[:, 1::2])
        else:
            words = self.arithmetic.operands(pixels)
        to = self.own + step.at + y * step.row + (x + step.left) * step.pitch
        self.shared.write(to[:, None] + np.arange(words.shape[1]), words, thread[:, None])

    def fill_threes(self, step: Fill) -> None:
        fours, plane = step.width // 4, step.height * step.width
        place, odd = step.left * 3, step.left * 3 & 1
        i = np.arange(step.height * fours)
        thread, y, x = i % step.threads, i // fours, i % fours * 4
        assert step.staged is not None
        first = (y * step.width + x)[:, None] + np.arange(3) * plane
        if (first % 4).any():
            raise Mistake("four pixels do not begin on a word")
        four = self.shared.read(self.own + step.staged + first // 4, thread[:, None])
        k = np.arange(12)
        bytes_ = four[:, k % 3] >> (k // 3 * 8).astype(np.uint32) & 0xFF
        found = self.pixel_value(step.pixels, bytes_, k % 3)
        pair = halves(found[:, 0::2], found[:, 1::2])
        row, lanes = self.own + step.at + y * step.row, thread[:, None]
        whole = row + odd * step.copy + (place - odd + 3 * x) // 2
        split = row + (1 - odd) * step.copy + (place + odd + 3 * x) // 2 - 1
        some = place + x > 0
        low, high = pair & 0xFFFF, pair >> 16
        self.shared.write_halves(2 * split[some] + 1, low[some, 0], thread[some])
        self.shared.write(whole[:, None] + np.arange(6), pair, lanes)
        across = high[:, :5] | low[:, 1:] << 16
        self.shared.write(split[:, None] + 1 + np.arange(5), across, lanes)
        self.shared.write_halves(2 * split + 12, high[:, 5], thread)

    def border(self, step: Border) -> None:
        units = 2 if step.tight else 1
        row = step.row * units
        for copy in range(2 if step.copy else 1):
            base = (self.own + step.at + copy * step.copy) * units
            dirty = (step.dirty - copy * step.copy) * units
            left, right = max(0, step.left - copy), step.right - copy
            below = (step.top + step.height) * row
            end = below + step.top * row

            def zero(at: Array, base: int = base) -> None:
                """One after the other, by one thread after the other."""
                threads = np.arange(at.size) % step.threads
                if step.tight:
                    self.shared.write_halves(base + at.ravel(), np.uint16(0), threads)
                else:
                    self.shared.write(base + at.ravel(), np.uint32(0), threads)

            zero(np.arange(min(step.top * row, dirty)))
            zero(np.arange(below, min(end, dirty)))
            rows = np.arange(min(step.height, int(dirty / row) + 1 - step.top))[:, None]
            k = np.arange(left + row - right)
            zero((step.top + rows) * row + np.where(k < left, k, right - left + k))
            if step.gap:
                between = np.arange(step.width)[:, None] * step.pitch + np.arange(step.gap)
                line = (step.top + rows) * row + step.left + step.words
                zero(line + between.ravel())
            if step.after:
                zero(np.arange(end, min(end + step.after * units, dirty)))
