"""Which images go by which schedule: jobs for any number of images.

Whole rounds, a vector of images for every core, go by the schedule whose lanes are images, unless
as many images one by one take clearly less, and any number of them may go so. What is
left after them is less than a round. Image by image it takes `(left * single + once) / cores` (in
units of a vector of images), as one more round it takes 1: the shorter one is chosen. `single`, the
cost of an image by channels as a share of that of a vector of images, and `once`, that of reading
the weights of large products, are computed from the two schedules (`cost`). Images that do not come
out even for the cores are worked on by all of them together.

A job has as many tickets as can be numbered, and lasts so long that a user who presses Ctrl-C need
not wait for it: a batch beyond that is several jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.few import Phase
from tilewright.fuse.cpu.tickets import END, MOST_TICKETS, Record

# What a job takes on each core, about a tenth of a second; beside it the microseconds between two
# jobs are nothing.
JOB_CYCLES = 3e8
# Estimates that differ less than this are taken for equal.
CLEARLY = 0.95


@dataclass(frozen=True)
class Shares:
    """Images up to `many` go in vectors, then up to `alone` one by one, the rest together."""

    many: int
    alone: int
    images: int


def shares(
    images: int, lanes: int, cores: int, single: float, once: float = 0.0, any_few: bool = False
) -> Shares:
    """How a number of images is divided. Not `any_few` go one by one where they wait for each other
    in memory that less than a round has room in."""
    round_ = lanes * cores
    all_few = any_few and lanes * single < CLEARLY
    many = 0 if all_few else images // round_ * round_
    left = images - many
    if left and not all_few and left * single + once >= cores:
        many = images
    alone = many + (images - many) // cores * cores
    return Shares(many, alone, images)


@dataclass(frozen=True)
class Job:
    """The records of all phases as `tickets` reads them, and how many others can help."""

    words: NDArray[np.int64]
    address: int
    tickets: int
    helpers: int


@dataclass(frozen=True)
class Kernel:
    """Machine code of a schedule, for one type of pixels, with its weights: addresses.

    `phases` are for one image worked on together; a schedule of many images has none. Those in
    `gathered` are for all images, when `phases` have been computed of each.
    """

    network: int
    weights: int
    phases: tuple[tuple[Phase, int], ...] = ()
    gathered: tuple[tuple[Phase, int], ...] = ()


class _Records:
    """Phases one after the other, cut into jobs."""

    def __init__(self, cores: int) -> None:
        self.cores = cores
        self.jobs: list[Job] = []
        self.records: list[Record] = []
        self.tickets = 0
        self.needs = 0

    def wait(self) -> None:
        """What is added next needs all that is there."""
        self.needs = self.tickets

    def add(
        self, function: int, weights: int, units: tuple[int, int, int], shifts: tuple[int, int],
        own: bool = False,
    ) -> None:  # fmt: skip
        """Units from the first, by steps, to the last, of the images that the shifts lead to; each
        thread in its `own` memory, or all in the leader's."""
        first, step, last = units
        while first < last:
            if self.tickets == MOST_TICKETS:
                self.close()
            until = min(last, first + step * (MOST_TICKETS - self.tickets))
            self.records.append(
                Record(
                    self.tickets, self.needs, function, weights, int(own), *shifts, first, step,
                    until,
                )
            )  # fmt: skip
            self.tickets += _tickets(self.records[-1])
            first = until

    def close(self) -> None:
        """End the job; what is added next belongs to another."""
        if self.records:
            helpers = min(self.cores, max(map(_tickets, self.records))) - 1
            end = Record(END, 0, 0, 0, 0, 0, 0, 0, 1, 0)
            words = np.array([astuple(record) for record in (*self.records, end)], np.int64)
            self.jobs.append(Job(words, words.ctypes.data, self.tickets, helpers))
        self.records, self.tickets, self.needs = [], 0, 0


def jobs(
    divided: Shares, many: Kernel | None, few: Kernel | None, piece: int, longest: int,
    image_bytes: int, output_bytes: int, cores: int,
) -> tuple[Job, ...]:  # fmt: skip
    """The jobs of a call: `piece` images go in one ticket by images, `longest` in one job, or one
    by one."""
    made = _Records(cores)
    if many is not None:
        for first in range(0, divided.many, longest):
            made.close()
            last = min(first + longest, divided.many)
            made.add(many.network, many.weights, (first, piece, last), (0, 0), own=True)
    if few is not None:
        shifts = (divided.many * image_bytes, divided.many * output_bytes)
        alone, images = divided.alone - divided.many, divided.images - divided.many
        for first in range(0, alone, longest):
            if first:
                made.close()
            made.add(
                few.network, few.weights, (first, 1, min(first + longest, alone)), shifts, own=True
            )
        for image in range(alone, images):
            for phase, function in few.phases:
                first, last = phase.of(image)
                made.wait()
                made.add(function, few.weights, (first, phase.step, last), shifts)
        for phase, function in few.gathered:
            made.wait()
            if phase.images == 1:
                made.add(function, few.weights, (0, -(-images // cores), images), shifts)
                continue
            for begin, count in sets(images, phase.images):
                first, last = phase.of_set(begin, count)
                made.add(function, few.weights, (first, phase.step, last), shifts)
    made.close()
    return tuple(made.jobs)


def sets(images: int, most: int) -> Iterator[tuple[int, int]]:
    """Images in as few sets as possible, all about equal: the first of each, and how many."""
    begin, count = 0, -(-images // most)
    for left in range(count, 0, -1):
        size = -(-(images - begin) // left)
        yield begin, size
        begin += size


def _tickets(record: Record) -> int:
    return -(-(record.last - record.first) // record.step)


def piece_of(many: int, lanes: int, together: int, cores: int) -> int:
    """Images in a ticket: vectors that go together, but the same number for every core."""
    rounds = max(1, -(-many // (lanes * cores)))
    return -(-rounds // -(-rounds // together)) * lanes


def longest_of(piece: int, lanes: int, cores: int, vector_cycles: float) -> int:
    """Images by images in a job: whole tickets for every core, for about `JOB_CYCLES`."""
    round_ = piece * cores
    return max(1, int(JOB_CYCLES / vector_cycles * lanes / piece)) * round_
