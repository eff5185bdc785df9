"""Where a schedule keeps its weights and its activations."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.schedule import (
    ConvolutionGroup,
    DenseGroup,
    PlainGroup,
    Schedule,
    padded_channels,
)
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
    """Where the weights of each group begin, in floats."""
    offsets, position = [], 0
    for group in plan.groups:
        offsets.append(position)
        if not isinstance(group, PlainGroup):
            taps = math.prod(next(iter(group.stages[0].parameter_shapes.values()))[1:])
            position += padded_channels(group) * (taps + 1)
    return offsets


def pack(plan: Schedule, parameters: Parameters) -> NDArray[np.float32]:
    """All parameters in one array, in the order in which the kernel reads them."""
    parts: list[NDArray[np.float32]] = []
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
        flat, bias = _filled(flat, group), _filled(bias, group)
        parts.append(bias)
        for block in group.blocks:
            for item in range(block.first, block.first + block.width * block.count, block.width):
                rows = slice(item * group.unit, (item + block.width) * group.unit)
                parts.append(flat[rows].T.ravel())
    return np.concatenate([*parts, np.zeros(1, np.float32)])  # some networks have no parameters


def _filled(rows: NDArray[np.float32], group: ConvolutionGroup | DenseGroup) -> NDArray[np.float32]:
    """The rows of all channels, with zeros up to whole vectors, or the last ones repeated."""
    packed = group.blocks[-1].packed
    surplus = padded_channels(group) - len(rows)
    if packed > 1:
        surplus -= group.unit - group.unit // packed
    rows = np.pad(rows, ((0, surplus), *[(0, 0)] * (rows.ndim - 1)))
    last = rows[len(rows) - group.unit // packed :]
    return np.concatenate([rows, *[last] * (packed - 1)])
