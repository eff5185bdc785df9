"""Parts of pictures: some of their channels, in any order.

They are chosen by a convolution of single pixels, whose weights are zeros and ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.errors import TilewrightError
from tilewright.model.formats.parts import Value, place_of
from tilewright.model.formats.sums import Sums
from tilewright.model.layers import Pixels

MOST_PARTS = 256  # that channels are split into
MOST_CHOSEN = 1 << 24  # weights of convolutions that choose channels


class Channels(Sums):
    """Of pictures: which channels are taken, and in which order."""

    def __init__(self, pixels: Pixels, normalises: bool) -> None:
        super().__init__(pixels, normalises)
        self.chosen = 0  # weights of convolutions that choose channels
        # Of parts that are channels of another one: which part, and which channels.
        self.picked: dict[int, tuple[int, tuple[int, ...]]] = {}

    def more_channels(self, name: str, x: Value, before: int, after: int) -> Value:
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
        if rank != 4 or x.split or place_of(axis, rank) != (3 if x.last else 1):
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
