"""How activations lie in memory between layers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.model.layers import Shape


@dataclass(frozen=True)
class Picture:
    """How activations lie in memory, in floats: the distances of neighbours along x, y, channel.

    `size` is what they take; a vector may be read anywhere inside.
    """

    channels: int
    height: int
    width: int
    step: int
    pitch: int
    plane: int
    size: int

    @property
    def values(self) -> int:
        """How many there are."""
        return self.channels * self.height * self.width

    @property
    def channels_last(self) -> bool:
        """Whether the channels of a pixel lie side by side."""
        return self.plane == 1


def lanes_picture(shape: Shape, lanes: int) -> Picture:
    """[channel][y][x][image]; a row of features is a column of pixels."""
    channels, height, width = shape if len(shape) == 3 else (shape[0], 1, 1)
    plane = height * width * lanes
    return Picture(channels, height, width, lanes, width * lanes, plane, channels * plane)


def staggered_picture(shape: Shape, lanes: int) -> Picture:
    """The same with odd distances between rows and channels.

    A tile reads the same place of every channel. With planes of a power of two those places
    fall into the same few lines of the first cache and drive each other out.
    """
    channels, height, width = shape
    pitch = width | 1
    plane = (pitch * height) | 1
    return Picture(
        channels, height, width, lanes, pitch * lanes, plane * lanes, channels * plane * lanes
    )


def channels_picture(shape: Shape, lanes: int) -> Picture:
    """[y][x][channel] of one image, whole vectors of channels."""
    channels, height, width = shape if len(shape) == 3 else (shape[0], 1, 1)
    step = math.ceil(channels / lanes) * lanes
    return Picture(channels, height, width, step, width * step, 1, height * width * step)


def planar_picture(shape: Shape, lanes: int) -> Picture:
    """[channel][y][x] of one image, as it is given."""
    channels, height, width = shape
    plane = height * width
    size = math.ceil(channels * plane / lanes) * lanes
    return Picture(channels, height, width, 1, width, plane, size)
