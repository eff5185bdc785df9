"""Rows and columns of pictures: crops, edges, nearest neighbours, windows of several sizes.

All of them are places chosen by their numbers, which is a layer (`Take`); several in a row are one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.channels import Channels
from tilewright.model.formats.parts import FREE, Pad, Value, place_of
from tilewright.model.layers import AveragePool, MaxPool, Pixels, Take
from tilewright.model.layers.sizes import Sides

# What windows of several sizes may grow to before they are averaged, times the picture.
MOST_GROWN = 64
# Rows and columns that are taken, and that they are taken of, in a whole network.
MOST_TAKEN = 1 << 21
# What NumPy calls the ways in which a picture goes on beyond its edges.
BEYOND = {"reflect": "reflect", "wrap": "wrap", "circular": "wrap", "edge": "edge",
          "replicate": "edge"}  # fmt: skip


class Places(Channels):
    """Of pictures: which rows and columns are taken, and what is put around them."""

    def __init__(self, pixels: Pixels, normalises: bool) -> None:
        super().__init__(pixels, normalises)
        self.taken = 0  # rows and columns, of all that were

    def take(self, name: str, x: Value, rows: Sequence[int], columns: Sequence[int]) -> Value:
        """These rows and columns of a picture, whose channels may come last."""
        part = self.parts[x.part]
        if len(part.shape) != 3 or x.split or x.expanded:
            raise TilewrightError("takes rows or columns of something else than a picture")
        if not len(rows) or not len(columns):
            raise TilewrightError("takes no rows, or no columns")
        _, height, width = part.shape
        self.taken += height + width + len(rows) + len(columns)
        if self.taken > MOST_TAKEN:
            raise TilewrightError(f"takes more than {MOST_TAKEN:,} rows and columns in all")
        if list(rows) == list(range(height)) and list(columns) == list(range(width)):
            return x
        if isinstance(part.layer, Take):
            own = part.layer
            rows, columns = [own.rows[y] for y in rows], [own.columns[at] for at in columns]
            return self.take(name, replace(x, part=part.sources[0]), rows, columns)
        return self.each(name, Take(list(rows), list(columns)), x)

    def along(self, name: str, x: Value, axis: int, places: Sequence[int]) -> Value:
        """These places along an axis, which counts the batch."""
        rank = len(self.shape(x)) + 1
        if rank == 4 and axis == (3 if x.last else 1) and not x.split:
            return self.pick(name, x, places)
        down, across = (1, 2) if x.last else (2, 3)
        if rank != 4 or axis not in (down, across):
            raise TilewrightError(
                f"a part of axis {axis}; channels, rows and columns of pictures are understood"
            )
        _, height, width = self.parts[x.part].shape
        rows, columns = range(height), range(width)
        return self.take(name, x, *((places, columns) if axis == down else (rows, places)))

    def concat(self, name: str, axis: int, *taken: Value) -> Value:
        """Of channels, or of rows or columns of one picture: a way to let it go on at its edges."""
        down, across = (1, 2) if taken[0].last else (2, 3)
        place = place_of(axis, len(self.shape(taken[0])) + 1)
        alike = {replace(each, part=self._origin(each)) for each in taken}
        if len(self.shape(taken[0])) != 3 or place not in (down, across) or len(alike) > 1:
            return super().concat(name, axis, *taken)
        rows, columns = zip(*map(self._taken, taken), strict=True)
        joined, same = (rows, columns) if place == down else (columns, rows)
        if len(set(same)) > 1:
            raise TilewrightError("puts other rows or columns behind each other")
        places = [place for each in joined for place in each]
        both = (places, same[0]) if place == down else (same[0], places)
        return self.take(name, alike.pop(), *both)

    def _origin(self, x: Value) -> int:
        part = self.parts[x.part]
        return part.sources[0] if isinstance(part.layer, Take) else x.part

    def _taken(self, x: Value) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Which rows and columns of its origin a picture has."""
        part = self.parts[x.part]
        if isinstance(part.layer, Take):
            return part.layer.rows, part.layer.columns
        _, height, width = part.shape
        return tuple(range(height)), tuple(range(width))

    def every(self, name: str, x: Value, axis: int, part: tuple[int, int, int]) -> Value:
        """From start to end of an axis, which counts the batch, in steps."""
        start, end, step = part
        if axis == 0:
            if start == 0 and end >= FREE and step == 1:
                return x
            raise TilewrightError("takes some of the images")
        if step == 0:
            raise TilewrightError("goes on in steps of 0")
        whole = self.shape(x)[axis - 1]
        places = range(whole)[slice(start, end, step)]
        if places == range(whole):
            return x
        if not places:
            raise TilewrightError(f"takes nothing of axis {axis}: {start} to {end}")
        return self.along(name, x, axis, places)

    def pad(
        self, name: str, x: Value, padding: Sides, channels: tuple[int, int], mode: str,
        level: float,
    ) -> Value:  # fmt: skip
        """Of height and width, and channels before and after; what is negative is cut off."""
        if len(self.parts[x.part].shape) != 3:
            raise TilewrightError("pads something else than a picture")
        x = self._cut(name, x, padding)
        above, left, below, right = (max(0, side) for side in padding)
        padding = (above, left, below, right)
        fill = BEYOND.get(mode)
        if mode == "constant" and level == 0:
            around = Pad(padding)
        elif mode == "constant" and level <= float(np.finfo(np.float32).min):
            around = Pad(padding, "minus infinity")
        elif fill == "edge":
            around = Pad(padding, "the edge")
        elif fill is None:
            with_what = f"{level:g}" if mode == "constant" else repr(mode[:40])
            raise TilewrightError(
                f"pads with {with_what}; 0, the edge, what is mirrored or goes round are "
                "understood, and, before a maximum over windows, minus infinity"
            )
        if any(channels) and not (mode == "constant" and level == 0):
            raise TilewrightError("pads channels with something else than zeros")
        x = self.more_channels(name, x, *channels)
        if not any(padding):
            return x
        if fill in ("reflect", "wrap"):
            _, height, width = self.parts[x.part].shape
            rows = beyond(height, above, below, fill)
            return self.take(name, x, rows, beyond(width, left, right, fill))
        return replace(x, part=self.add(name, around, x).part)

    def _cut(self, name: str, x: Value, padding: Sides) -> Value:
        if min(padding) >= 0:
            return x
        above, left, below, right = (max(0, -side) for side in padding)
        _, height, width = self.parts[x.part].shape
        return self.take(name, x, range(above, height - below), range(left, width - right))

    def windows(self, name: str, x: Value, wanted: tuple[int, int], largest: bool) -> Value:
        """So many windows along height and width that cover a picture, as even as can be."""
        _, *sizes = self.parts[self.picture(x).part].shape
        if min(wanted) < 1 or any(
            count > MOST_GROWN * size for size, count in zip(sizes, wanted, strict=True)
        ):
            raise TilewrightError(
                f"{wanted[0]}x{wanted[1]} windows for a picture of {sizes[0]}x{sizes[1]}"
            )
        pool = MaxPool if largest else AveragePool
        found = [
            [(at * size // count, -(-(at + 1) * size // count)) for at in range(count)]
            for size, count in zip(sizes, wanted, strict=True)
        ]
        (rows, down, step_y), (columns, across, step_x) = (_even(each, largest) for each in found)
        if len(rows) * len(columns) > MOST_GROWN * math.prod(sizes):
            raise TilewrightError(
                f"windows of sizes that have too little in common: {sizes[0]}x{sizes[1]} into "
                f"{wanted[0]}x{wanted[1]}"
            )
        taken = self.take(name, x, rows, columns)
        return self.add(name, pool((down, across), stride=(step_y, step_x)), taken)


def beyond(size: int, before: int, after: int, fill: str) -> list[int]:
    """Which places a picture goes on with beyond its edges."""
    most = {"reflect": size - 1, "wrap": size, "edge": max(before, after)}[fill]
    if max(before, after) > most:
        raise TilewrightError(f"pads {size} by {max(before, after)} of its own")
    places = np.arange(-before, size + after)
    if fill == "reflect":
        places = size - 1 - np.abs(size - 1 - np.abs(places))
    found = places % size if fill == "wrap" else np.clip(places, 0, size - 1)
    return [int(place) for place in found]


def _even(windows: list[tuple[int, int]], largest: bool) -> tuple[list[int], int, int]:
    """Places so that windows of one size, one step after the other, stand for those of several;
    that size, and the step. Every place of a window is there equally often; of a maximum the last
    one may be there more often."""
    sizes = [end - begin for begin, end in windows]
    steps = {after[0] - before[0] for before, after in itertools.pairwise(windows)}
    if len(set(sizes)) == 1 and len(steps) <= 1 and 0 not in steps:
        return list(range(windows[-1][1])), sizes[0], steps.pop() if steps else sizes[0]
    whole = max(sizes) if largest else math.lcm(*sizes)
    if whole * len(windows) > MOST_TAKEN:
        raise TilewrightError(
            f"windows of sizes that have too little in common: {windows[-1][1]} into {len(windows)}"
        )
    places = []
    for begin, end in windows:
        each = 1 if largest else whole // (end - begin)
        own = [place for place in range(begin, end) for _ in range(each)]
        places += own + [end - 1] * (whole - len(own))
    return places, whole, whole
