"""Which images go by which schedule: jobs for any number of images.

Whole rounds, a vector of images for every core, go by the schedule whose lanes are images, unless
as many images one by one take clearly less, and any number of them may go so, or these are few.
What is left after them is less than a round. Image by image it takes `(left * single + once) /
cores` (in units of a vector of images), as one more round it takes 1: the shorter one is chosen.
`single`, the cost of an image by channels as a share of that of a vector of images, and `once`,
that of reading the weights of large products, are computed from the two schedules (`cost`); so is
`lone`, what it costs more that one round of vectors, or a few, have all those weights to
themselves. Images that do not come out even for the cores are worked on by all of them together.
Images one by one wait for each other where weights are read once for all of them (`few`): at most
as many as there is `room` for.

Where there are only products (`Rows`), images by channels are rows of a matrix, and need no vectors
of images: every core takes some through the whole network, or, where large weights would be read
for a few by each, all cores take outputs of all of them.

A job has as many tickets as can be numbered, and lasts so long that a user who presses Ctrl-C need
not wait for it: a batch beyond that is several jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.few import Phase
from tilewright.fuse.cpu.grouped import DenseGroup
from tilewright.fuse.cpu.parameters import layout, weight_offsets
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.tickets import END, MOST_TICKETS, Record

# What a job takes on each core, about a tenth of a second; beside it the microseconds between two
# jobs are nothing.
JOB_CYCLES = 3e8
# Estimates that differ less than this are taken for equal.
CLEARLY = 0.96
# Images of a core that may wait for each other, at least. Chosen.
ROOM = 16
# And what all of them may keep. Chosen.
ROOM_BYTES = 2**26
# Tickets for a core of a phase of images that waited, so that none is idle for long at its end; and
# what a core computes in such phases before a job ends, for users who press Ctrl-C. Chosen.
TICKETS, JOB_FLOP = 3, 2e9
# What a vector of images may seem to take as rows, which need not be turned around
# (`cost_as_rows`): so chosen, 27 of 28 cases go the way that is faster, and one takes 1.35 times as
# long; with 1.4, several went by vectors that take up to 1.9 times as long so (14 perceptrons, a
# core of an AMD EPYC of the fifth generation, AVX-512 and with that hidden, 2026-11-19).
AS_ROWS = 1.75
# Rows that a core takes at a time: as many as have so many bytes of values, which the second cache
# holds beside weights, but half of so many at least, and whole sets. Chosen.
PIECE_BYTES, MANY_ROWS = 2**18, 96
# What the core with most to do may have more where pieces are of whole sets. Chosen.
MOST_UNEVEN = 1.02
# Images of a core for which it reads all weights, if those are so many bytes: the second cache of
# every core holds them, or the last one. Chosen.
ROWS_APART = ((2**19, 0), (2**22, 4))
# What a core takes of them at least, in FLOP: below that two were no faster than one (784-64-10, 2
# cores of an AMD EPYC, 2026-11-17).
ROWS_FLOP = 400_000


@dataclass(frozen=True)
class Shares:
    """Images up to `many` go in vectors, then up to `alone` one by one, or so many `rows` at a
    time, the rest together."""

    many: int
    alone: int
    images: int
    rows: int = 1


def room(lanes: int, cores: int, slot: int = 0) -> int:
    """Images that may wait for each other, whose values are kept, so many floats: a round, or more;
    fewer where these are large."""
    each = max(lanes, ROOM)
    return min(each, max(1, ROOM_BYTES // (4 * slot * cores))) * cores if slot else each * cores


def shares(
    images: int, lanes: int, cores: int, single: float, once: float = 0.0, lone: float = 0.0,
    any_few: bool = False, slot: int = 0,
) -> Shares:  # fmt: skip
    """How a number of images is divided. Not `any_few` go one by one where they wait for each other
    in memory that has room for `room`."""
    round_, most = lanes * cores, room(lanes, cores, slot)
    left = images % round_
    many = images - left
    if left > most or (left and left * single + once >= cores * (1 if many else 1 + lone)):
        many = images
    if many:
        divided = cores * (-(-many // round_) + lone)
        divided += (images - many) * single + once if many < images else 0
        fits = images <= most and images * single + once < CLEARLY * divided
        if fits or (any_few and lanes * single < CLEARLY):
            many = 0
    alone = many + (images - many) // cores * cores
    return Shares(many, alone, images)


@dataclass(frozen=True)
class Rows:
    """How images are divided that are rows of a matrix (`Schedule.in_rows`): every core takes
    `least` to `piece` at a time where there are `apart` for each; fewer go through together. All
    but the last have whole sets, of which registers hold the sums, if cores then have as much to do
    as each other."""

    least: int
    piece: int
    apart: int
    together: int = 1  # rows of a set

    def shares(self, many: int, images: int, cores: int) -> Shares:
        """Of so many images, of which some go in vectors."""
        left = max(1, images - many)
        if cores > 1 and self.least <= left < self.apart * cores:
            return Shares(many, many, images, left)
        each = -(-left // cores)  # pieces are as few as can be, the same number for every core
        rows = max(self.least, -(-each // -(-each // self.piece)))
        whole = -(-rows // self.together) * self.together
        if whole <= self.piece and whole * -(-left // (cores * whole)) <= MOST_UNEVEN * each:
            rows = whole
        return Shares(many, images, images, rows)


def rows_of(plan: Schedule) -> Rows:
    """What that is for a schedule: by what it computes and keeps for an image, and its weights."""
    weights = 4 * weight_offsets(plan)[-1]
    least = math.ceil(ROWS_FLOP / plan.executed_flops)
    piece = PIECE_BYTES // (4 * layout(plan).slot)
    piece = max(MANY_ROWS // 2, min(piece, MANY_ROWS), least)
    products = [group for group in plan.groups if isinstance(group, DenseGroup)]
    together = max(products, key=lambda group: group.executed_flops).images
    return Rows(
        least,
        -(-piece // together) * together,
        next((rows for size, rows in ROWS_APART if weights <= size), MANY_ROWS // 2),
        together,
    )


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

    `phases` are for one image worked on together; a schedule of many images has none, nor has one
    of rows. Those in `gathered` are for all images, when `phases` have been computed of each.
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
            units = first, divided.rows, min(first + longest, alone)
            made.add(few.network, few.weights, units, shifts, own=True)
        for image in range(alone, images):
            for phase, function in few.phases:
                first, last = phase.of(image)
                made.wait()
                made.add(function, few.weights, (first, phase.step, last), shifts)
        # A core that took rows took them through all phases.
        flop = 0
        for phase, function in few.gathered if few.phases or not alone else ():
            flop += phase.flop * images
            if flop > cores * JOB_FLOP:
                made.close()
                flop = phase.flop * images
            made.wait()
            for units in _all(phase, images, cores):
                made.add(function, few.weights, units, shifts)
    made.close()
    return tuple(made.jobs)


def _all(phase: Phase, images: int, cores: int) -> Iterator[tuple[int, int, int]]:
    """A phase's units of all images: the first, how many at a time, and the first that is none."""
    if phase.all_images:
        # Sets of images where there are few units: what is read for each of them is read once more.
        wanted = TICKETS * cores // -(-phase.units // phase.step) if phase.shared else 1
        sets = min(images, max(1, wanted))
        for number in range(sets):
            begin, end = number * images // sets, (number + 1) * images // sets
            first, last = phase.of_several(begin, end - begin)
            yield first, phase.step, last
    elif phase.units > 1 and images < cores:
        for image in range(images):
            first, last = phase.of(image)
            yield first, phase.step, last
    elif phase.units > 1:
        yield 0, phase.units, images * phase.units
    else:
        yield 0, -(-images // cores), images


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
