"""Which images go by which schedule: a job for any number of images.

Whole rounds, a vector of images for every core, go by the schedule whose lanes are images. What is
left after them is less than a round. Image by image it takes `left * single / cores` (in units of a
vector of images), as one more round it takes 1: the shorter one is chosen. `single`, the cost of an
image by channels as a share of that of a vector of images, is computed from the two schedules
(`cost`). Images that do not come out even for the cores are worked on by all of them together.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.few import Phase
from tilewright.fuse.cpu.tickets import END, MOST_TICKETS, Record


@dataclass(frozen=True)
class Shares:
    """Images up to `many` go in vectors, then up to `alone` one by one, the rest together."""

    many: int
    alone: int
    images: int


def shares(images: int, lanes: int, cores: int, single: float) -> Shares:
    """How a number of images is divided."""
    round_ = lanes * cores
    many = images // round_ * round_
    left = images - many
    if left * single >= cores:
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

    `phases` are for one image worked on together; a schedule of many images has none.
    """

    network: int
    weights: int
    phases: tuple[tuple[Phase, int], ...] = ()


def job(
    divided: Shares, many: Kernel | None, few: Kernel | None, piece: int, image_bytes: int,
    output_bytes: int, cores: int,
) -> Job:  # fmt: skip
    """The phases of a call; `piece` images are the most to go in one ticket by images."""
    records: list[Record] = []

    def add(function: int, kernel: Kernel, own: int, image: int, first: int, step: int, last: int,
            free: bool) -> None:  # fmt: skip
        start = records[-1].start + _tickets(records[-1]) if records else 0
        shifts = (image * image_bytes, image * output_bytes)
        needs = 0 if free else start
        records.append(
            Record(start, needs, function, kernel.weights, own, *shifts, first, step, last)
        )

    if many is not None and divided.many:
        step = max(piece, -(-divided.many // MOST_TICKETS // piece) * piece)
        add(many.network, many, 1, 0, 0, step, divided.many, True)
    if few is not None:
        if divided.alone > divided.many:
            add(few.network, few, 1, 0, divided.many, 1, divided.alone, True)
        for image in range(divided.alone, divided.images):
            for phase, function in few.phases:
                add(function, few, 0, image, 0, phase.step, phase.units, False)
    total = records[-1].start + _tickets(records[-1]) if records else 0
    helpers = min(cores, max(map(_tickets, records), default=1)) - 1
    end = Record(END, 0, 0, 0, 0, 0, 0, 0, 1, 0)
    words = np.array([astuple(record) for record in (*records, end)], np.int64)
    return Job(words, words.ctypes.data, total, helpers)


def _tickets(record: Record) -> int:
    return -(-(record.last - record.first) // record.step)


def piece_of(many: int, lanes: int, together: int, cores: int) -> int:
    """Images in a ticket: vectors that go together, but the same number for every core."""
    rounds = max(1, -(-many // (lanes * cores)))
    return -(-rounds // -(-rounds // together)) * lanes
