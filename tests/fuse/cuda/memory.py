"""Shared memory that notices what a GPU would leave to chance.

Threads of a step run one after the other here; on a GPU they run at the same time, and so do steps
with no barrier between them. So every word remembers who wrote and who read it since the threads
last met: a word that one thread wrote and another reads or writes before they met is a mistake,
whatever the numbers say. So are words that are read while a fetch is on its way to them, accesses
of several words that do not begin on such a boundary, and addresses outside. A mistake names the
step in which it shows, and the one before it that it has to be kept apart from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
NOBODY, EVERYBODY = -1, -2
# Not a number, as a float and as two halves: what was never written shows.
POISON = 0x7FC07E00


class Mistake(Exception):
    """What a kernel must not do."""


class Memory:
    """`own`: the first word of a group's own memory, from which its addresses count."""

    def __init__(
        self, name: str, words: int, filled_with: int = POISON, own: int | None = None
    ) -> None:
        self.name, self.own = name, own
        self.doing = ["nothing"]  # every step so far
        self.written_in = np.zeros(words, np.int32)
        self.read_in = np.zeros(words, np.int32)
        self.words = np.full(words, filled_with, np.uint32)
        self.writers = np.full((words, 2), NOBODY, np.int32)  # of each half
        self.readers = np.full(words, NOBODY, np.int32)
        self.flying = np.zeros(words, bool)
        self.fetches: list[tuple[Array, Array, Array]] = []
        self.groups: list[list[tuple[Array, Array, Array]]] = []

    def begin(self, step: str) -> None:
        """Whatever follows is done in this step."""
        self.doing.append(step)

    def read(self, at: Array, threads: Array | int, width: int = 1) -> Array:
        """Words by threads; `at` are the first of so many that are read at once."""
        at = self._spread(at, width)
        thread = _threads(threads, width)
        self._arrived(at)
        writers = self.writers[at]
        self._refuse(
            at, ((writers != NOBODY) & (writers != thread[..., None])).any(-1),
            "is read by another thread than wrote it, with no barrier between",
        )  # fmt: skip
        before = self.readers[at]
        now = np.where((before == NOBODY) | (before == thread), thread, EVERYBODY)
        self.readers[at] = now
        self.readers[at[self.readers[at] != now]] = EVERYBODY
        self.read_in[at] = len(self.doing) - 1
        return self.words[at]

    def write(self, at: Array, values: Array, threads: Array | int, width: int = 1) -> None:
        """The same word may be written twice, if it is with the same."""
        at = self._spread(at, width)
        thread = _threads(threads, width)
        values = np.asarray(values, np.uint32)
        self._arrived(at)
        self._unread(at, thread)
        writers = self.writers[at]
        others = ((writers != NOBODY) & (writers != thread[..., None])).any(-1)
        if others.any():
            self._refuse(at, others & _differ(self.words[at], values), "is written by two threads")
        self.words[at] = values
        self.written_in[at] = len(self.doing) - 1
        self._refuse(at, _differ(self.words[at], values), "is written by two threads")
        self.writers[at] = thread[..., None]

    def write_halves(self, at: Array, bits: Array, threads: Array) -> None:
        """The same for halves, counted in halves."""
        self._inside(at, 2 * len(self.words))
        thread = np.asarray(threads)
        word, side = at // 2, at % 2
        self._arrived(word)
        self._unread(word, thread)
        writers, halves = self.writers[word, side], self.words.view(np.uint16)
        others = (writers != NOBODY) & (writers != thread)
        self._refuse(word, others & (halves[at] != bits), "is written by two threads")
        halves[at] = bits
        self.written_in[word] = len(self.doing) - 1
        self.writers[word, side] = thread

    def fetch(self, at: Array, values: Array, threads: Array, width: int = 4) -> None:
        """16 bytes at a time, or less, which are there when their threads have waited for them."""
        at = self._spread(at, width)
        thread = _threads(threads, width)
        self._arrived(at)
        self._unread(at, thread)
        writers = self.writers[at]
        others = ((writers != NOBODY) & (writers != thread[..., None])).any(-1)
        self._refuse(at, others, "is fetched where another thread wrote, with no barrier between")
        self.flying[at] = True
        self.written_in[at] = len(self.doing) - 1
        self.fetches.append((at, values.reshape(at.shape), thread))

    def commit(self) -> None:
        """What was fetched since the last time is one group."""
        self.groups.append(self.fetches)
        self.fetches = []

    def arrive(self, all_but: int = 0) -> None:
        """All fetches are waited for, or all but those of the last groups."""
        if all_but == 0:
            self.commit()
        kept = len(self.groups) - all_but
        for group in self.groups[: max(0, kept)]:
            for at, values, thread in group:
                self.words[at] = values
                self.writers[at] = thread[..., None]
                self.flying[at] = False
        self.groups = self.groups[max(0, kept) :]

    def meet(self, threads: int) -> None:
        """A barrier of the first so many threads: what they did is done."""
        self.writers[self.writers < threads] = NOBODY
        self.readers[self.readers < threads] = NOBODY

    def _spread(self, at: Array, width: int) -> Array:
        """All words of accesses that are so wide."""
        at = np.asarray(at)
        if width > 1 and (at % width).any():
            raise Mistake(f"{self.name}: {width} words at once from word {at[at % width > 0][0]}")
        spread = at[..., None] + np.arange(width) if width > 1 else at
        self._inside(spread, len(self.words))
        return spread

    def _inside(self, at: Array, size: int) -> None:
        if at.size and (at.min() < 0 or at.max() >= size):
            raise Mistake(f"{self.name}: {at.min()} to {at.max()} is not inside its {size}")

    def _arrived(self, at: Array) -> None:
        if self.fetches or self.groups:
            self._refuse(at, self.flying[at], "is used while a fetch is on its way to it")

    def _unread(self, at: Array, thread: Array) -> None:
        readers = self.readers[at]
        self._refuse(
            at, (readers != NOBODY) & (readers != thread),
            "is written while other threads may still read it", self.read_in,
        )  # fmt: skip

    def _refuse(
        self, at: Array, wrong: Array, why: str, touched_in: NDArray[np.int32] | None = None
    ) -> None:
        if wrong.any():
            word = int(at[wrong][0])
            before = self.doing[(self.written_in if touched_in is None else touched_in)[word]]
            place = f"word {word}"
            if self.own is not None and word >= self.own:
                place += f" ({word - self.own} of the group's own)"
            raise Mistake(f"{self.name}: {place} {why}: {self.doing[-1]}, after {before}")


def part(given: Array, at: int, size: int) -> Array:
    """Of what lies in device memory, and is only read."""
    if at < 0 or at + size > len(given):
        raise Mistake(f"device memory: {at} to {at + size} is not inside its {len(given)}")
    return given[at : at + size]


def _threads(threads: Array | int, width: int) -> Array:
    """By words, as far as they are not all of one thread."""
    each = np.asarray(threads)
    return each[..., None] if width > 1 and each.ndim else each


def _differ(ours: Array, theirs: Array) -> Array:
    """Whether words differ; what is not a number may be so in many ways."""
    differ = ours != theirs
    return differ & ~(_odd(ours) & _odd(theirs)) if differ.any() else differ


def _odd(words: Array) -> Array:
    """Whether a word is NaN, or one of its halves is."""
    words = np.ascontiguousarray(words)
    halves = np.isnan(words[..., None].view(np.float16)).any(-1)
    return np.isnan(words.view(np.float32)) | halves
