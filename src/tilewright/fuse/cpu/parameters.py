"""Where a schedule keeps its weights and its activations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.arrays import aligned
from tilewright.fuse.cpu.schedule import (
    ConvolutionGroup,
    DenseGroup,
    PlainGroup,
    Schedule,
    padded_channels,
)
from tilewright.fuse.cpu.tiles import Block
from tilewright.model.network import Parameters


@dataclass(frozen=True)
class Layout:
    """Where each group's output lies in the scratch memory, in floats, and how much there is."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    size: int


def layout(plan: Schedule) -> Layout:
    """Groups alternate between two regions, the gathered ones between two more.

    What is gathered must outlive the front groups of the next block of images.
    """
    sizes = [picture.size for picture in plan.pictures]
    # Buffer i is the input of group i; it is gathered if that group, or one before it, is.
    front = sizes[: plan.gathered]
    back = [size * plan.together for size in sizes[plan.gathered :]]
    starts, end = [], 0
    for part in (front, back):
        even, odd = max(part[::2], default=0), max(part[1::2], default=0)
        starts += [end if i % 2 == 0 else end + even for i in range(len(part))]
        end += even + odd
    return Layout(tuple(starts[:-1]), tuple(starts[1:]), end)


def weight_offsets(plan: Schedule) -> list[int]:
    """Where the weights of each group begin, in floats, and behind the last of them."""
    offsets = [0]
    for group in plan.groups:
        size = 0
        if not isinstance(group, PlainGroup):
            taps = math.prod(next(iter(group.stages[0].parameter_shapes.values()))[1:])
            size = padded_channels(group) * (taps + 1)
        offsets.append(offsets[-1] + size)
    return offsets


def pack(plan: Schedule, parameters: Parameters) -> NDArray[np.float32]:
    """All parameters in one array, in the order in which the kernel reads them."""
    offsets = weight_offsets(plan)
    packed = aligned(offsets[-1] + 1, np.float32)  # some networks have no parameters
    for index, group in enumerate(plan.groups):
        if isinstance(group, PlainGroup):
            continue
        name, picture = group.stages[0].name, plan.pictures[index]
        weight = parameters[f"{name}.weight"]
        if isinstance(group, DenseGroup) and picture.channels_last:
            pixels = picture.height * picture.width
            weight = weight.reshape(len(weight), picture.channels, pixels).swapaxes(1, 2)
        flat = weight.reshape(len(weight), -1)
        bias = parameters.get(f"{name}.bias", np.zeros(len(weight), np.float32))
        rows, position = _rows(group, len(weight)), offsets[index]
        packed[position : position + len(rows)] = np.where(rows < 0, 0, bias[rows])
        position += len(rows)
        taps = flat.shape[1]
        for block in group.blocks:
            size = block.width * group.unit
            for first in range(block.first * group.unit, _end(block, group.unit), size):
                chosen = rows[first : first + size]
                target = packed[position : position + taps * size].reshape(taps, size)
                real = chosen >= 0
                if real.all() and chosen[-1] - chosen[0] == size - 1:
                    target[:] = flat[chosen[0] : chosen[-1] + 1].T
                else:
                    target[:, real] = flat[chosen[real]].T
                position += taps * size
    return packed


def _end(block: Block, unit: int) -> int:
    return (block.first + block.width * block.count) * unit


def _rows(group: ConvolutionGroup | DenseGroup, channels: int) -> NDArray[np.intp]:
    """The channel of every row that is packed: -1 for zeros up to whole vectors; leftover
    channels that are packed for several positions come several times."""
    copies = group.blocks[-1].packed
    surplus = padded_channels(group) - channels
    if copies > 1:
        surplus -= group.unit - group.unit // copies
    rows = np.concatenate([np.arange(channels), np.full(surplus, -1)])
    last = rows[len(rows) - group.unit // copies :]
    return np.concatenate([rows, *[last] * (copies - 1)])
