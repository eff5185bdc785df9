"""Parts of pictures: some of their channels, rows or columns, and what is put around them.

Channels are chosen by a convolution of single pixels, whose weights are zeros and ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import FREE, Pad, Value
from tilewright.model.formats.sums import Sums
from tilewright.model.layers import MaxPool, Pixels
from tilewright.model.layers.sizes import Sides

MOST_PARTS = 256  # that channels are split into
MOST_CHOSEN = 1 << 24  # weights of convolutions that choose channels


class Channels(Sums):
    """Of pictures: which part of them is taken, and in which order."""

    def __init__(self, pixels: Pixels, normalises: bool) -> None:
        super().__init__(pixels, normalises)
        self.chosen = 0  # weights of convolutions that choose channels
        # Of parts that are channels of another one: which part, and which channels.
        self.picked: dict[int, tuple[int, tuple[int, ...]]] = {}

    def pad(
        self, name: str, x: Value, padding: Sides, channels: tuple[int, int], mode: str,
        level: float,
    ) -> Value:  # fmt: skip
        """Of height and width, and channels before and after."""
        if min(padding) < 0:
            raise TilewrightError("cuts a picture's edges off")
        if mode == "constant" and level == 0:
            around = Pad(padding)
        elif mode == "constant" and level <= float(np.finfo(np.float32).min):
            around = Pad(padding, "minus infinity")
        elif mode in ("edge", "replicate"):
            around = Pad(padding, "the edge")
        else:
            with_what = f"{level:g}" if mode == "constant" else repr(mode[:40])
            raise TilewrightError(
                f"pads with {with_what}; 0 is understood, and, before a maximum "
                "over windows, minus infinity and the edge"
            )
        if any(channels) and around.fill != "zeros":
            raise TilewrightError(f"pads channels with {around.fill}")
        x = self._more_channels(name, x, *channels)
        if not any(padding):
            return x
        return replace(x, part=self.add(name, around, x).part)

    def _more_channels(self, name: str, x: Value, before: int, after: int) -> Value:
        """Channels of zeros before and after the picture's own, by a convolution."""
        if min(before, after) < 0:
            raise TilewrightError("cuts channels off")
        if not before and not after:
            return x
        channels = self.shape(self.picture(x))[0]
        return self._chosen(name, x, [-1] * before + [*range(channels)] + [-1] * after)

    def _chosen(self, name: str, x: Value, channels: Sequence[int]) -> Value:
        """These channels of every pixel; -1 is one of zeros."""
        count = self.parts[x.part].shape[0]
        self.chosen += count * len(channels)
        if self.chosen > MOST_CHOSEN:
            raise TilewrightError(f"puts channels in order by more than {MOST_CHOSEN:,} weights")
        weight = np.zeros((len(channels), count), np.float32)
        for row, channel in enumerate(channels):
            if channel >= 0:
                weight[row, channel] = 1
        return self._by_pixel(name, x, weight, None)

    def pick(self, name: str, x: Value, channels: Sequence[int]) -> Value:
        """Some of a picture's channels, in any order, by a convolution; of channels that were
        picked, those of the picture that they are from."""
        if x.part in self.picked:
            part, own = self.picked[x.part]
            x, channels = replace(x, part=part), [own[each] for each in channels]
        (count, *_) = self.parts[self.picture(replace(x, last=False)).part].shape
        if list(channels) == list(range(count)):
            return x
        made = replace(x, part=self._chosen(name, replace(x, last=False), channels).part)
        self.picked[made.part] = x.part, tuple(channels)
        return made

    def split(self, name: str, x: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
        """Channels in parts of these sizes, one after the other."""
        rank, channels = len(self.shape(x)) + 1, self.parts[x.part].shape[0]
        if rank != 4 or x.split or axis % rank != (3 if x.last else 1):
            raise TilewrightError(f"splits axis {axis}; channels of pictures are understood")
        if not sizes or min(sizes) < 1 or sum(sizes) != channels or len(sizes) > MOST_PARTS:
            raise TilewrightError(f"splits {channels} channels into {list(sizes)[:9]}")
        ends = np.cumsum(sizes).tolist()
        return tuple(
            self.pick(name, x, range(end - size, end))
            for size, end in zip(sizes, ends, strict=True)
        )

    def shuffle(self, name: str, x: Value, groups: int) -> Value:
        """The first channel of every group, then the second of every group."""
        channels = self.shape(self.picture(x))[0]
        if groups < 1 or channels % groups:
            raise TilewrightError(f"{groups} groups of {channels} channels")
        return self.pick(name, x, np.arange(channels).reshape(groups, -1).T.ravel().tolist())

    def every(self, name: str, x: Value, axis: int, part: tuple[int, int, int]) -> Value:
        """From start to end of an axis, which counts the batch, in steps: all of it, or every so
        many rows or columns, which is a pooling of single pixels."""
        start, end, step = part
        rank = len(self.shape(x)) + 1
        whole = FREE if axis == 0 else self.shape(x)[axis - 1]
        if start == 0 and end >= whole and step == 1:
            return x
        places = (1, 2) if x.last else (2, 3)
        if rank == 4 and axis == (3 if x.last else 1) and not x.split:
            chosen = range(whole)[slice(start, end, step if step > 0 else None)]
            if not chosen or step < 1:
                raise TilewrightError(f"takes no channels, or backwards: {start} to {end}")
            return self.pick(name, x, chosen)
        if rank != 4 or axis not in places or start != 0 or end < whole or step < 1:
            raise TilewrightError(
                f"a part of axis {axis}; channels are understood, and every so many rows or columns"
            )
        stride = (step, 1) if axis == places[0] else (1, step)
        return replace(x, part=self.add(name, MaxPool(1, stride=stride), x).part)
