"""Where a schedule keeps its weights and its activations."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.arrays import aligned
from tilewright.fuse.cpu.grouped import ConvolutionGroup, DenseGroup, PlainGroup, padded_channels
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.tiles import Block
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.network import Parameters

LINE = 16  # floats of a cache line


@dataclass(frozen=True)
class Layout:
    """Where each value lies in the scratch memory, in floats, where the memory begins that a group
    works in, and how much there is.

    Where images come one by one and go through large products together, what is kept of them lies
    before the memory of the thread that leads, or of every thread where it takes rows (`Rows`): the
    first image's in `slot` floats, the next one's before those.
    """

    values: tuple[int, ...]
    work: int
    size: int
    slot: int = 0


def layout(plan: Schedule) -> Layout:
    """A value has a region until its last reader is done: in a chain, they alternate between two.

    Those that are kept have regions of their own: they must outlive what the front groups do with
    the next vector of images.
    """
    kept = plan.kept
    front, end = _regions(plan, [v for v in range(len(plan.pictures)) if v not in kept], 1)
    behind, size = _regions(plan, kept, plan.together)
    used = (group.vectors for group in plan.groups if isinstance(group, WinogradGroup))
    work = plan.target.lanes * max(used, default=0)
    slot, begin = 0, end
    if plan.one_by_one and plan.gathered < len(plan.groups):
        # An odd number of cache lines: the same place of several images is read at once.
        slot = (math.ceil(size / LINE) | 1) * LINE
        begin, size = -slot, 0
    starts = front | {value: begin + start for value, start in behind.items()}
    end += size
    return Layout(tuple(starts[v] for v in range(len(starts))), end, end + work, slot)


def _regions(plan: Schedule, values: Iterable[int], vectors: int) -> tuple[dict[int, int], int]:
    """Where values begin that are there for so many vectors of images, and what they all take."""
    last = plan.last_readers
    busy: list[int] = []  # until which group each region is
    sizes: list[int] = []
    chosen: dict[int, int] = {}
    for value in values:
        free = (place for place, until in enumerate(busy) if until < value - 1)
        region = next(free, len(busy))
        if region == len(busy):
            busy.append(0)
            sizes.append(0)
        busy[region] = last[value]
        sizes[region] = max(sizes[region], plan.pictures[value].size * vectors)
        chosen[value] = region
    return {value: sum(sizes[:region]) for value, region in chosen.items()}, sum(sizes)


def weight_offsets(plan: Schedule) -> list[int]:
    """Where the weights of each group begin, in floats, and behind the last of them."""
    offsets = [0]
    for group in plan.groups:
        size = 0
        if isinstance(group, WinogradGroup):
            size = group.weights
        elif not isinstance(group, PlainGroup):
            taps = math.prod(next(iter(group.stages[0].parameter_shapes.values()))[1:])
            parts = group.parts if isinstance(group, ConvolutionGroup) else 1
            size = parts * padded_channels(group) * (taps + 1)
        offsets.append(offsets[-1] + size)
    return offsets


def pack(plan: Schedule, parameters: Parameters) -> NDArray[np.float32]:
    """All parameters in one array, in the order in which the kernel reads them."""
    offsets = weight_offsets(plan)
    packed = aligned(offsets[-1] + 1, np.float32)  # some networks have no parameters
    for index, group in enumerate(plan.groups):
        if isinstance(group, PlainGroup):
            continue
        name, picture = group.stages[0].name, plan.pictures[plan.takes[index][0]]
        weight = parameters[f"{name}.weight"]
        if isinstance(group, DenseGroup) and picture.channels_last:
            pixels = picture.height * picture.width
            weight = weight.reshape(len(weight), picture.channels, pixels).swapaxes(1, 2)
        bias = parameters.get(f"{name}.bias", np.zeros(len(weight), np.float32))
        if isinstance(group, WinogradGroup):
            _pack_winograd(group, weight, bias, packed[offsets[index] : offsets[index + 1]])
            continue
        parts = group.parts if isinstance(group, ConvolutionGroup) else 1
        space = packed[offsets[index] : offsets[index + 1]].reshape(parts, -1)
        channels = len(weight) // parts
        flat = weight.reshape(parts, channels, -1)
        for part in range(parts):
            _pack(group, flat[part], bias[part * channels : (part + 1) * channels], space[part])
    return packed


def _pack(
    group: ConvolutionGroup | DenseGroup,
    flat: NDArray[np.float32],
    bias: NDArray[np.float32],
    packed: NDArray[np.float32],
) -> None:
    """The parameters of a group, or of a part of it: the biases, then block by block."""
    channels, taps = flat.shape
    rows = _rows(group, channels)
    position = len(rows)
    packed[:position] = np.where(rows < 0, 0, bias[rows])
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


def _pack_winograd(
    group: WinogradGroup,
    weight: NDArray[np.float32],
    bias: NDArray[np.float32],
    packed: NDArray[np.float32],
) -> None:
    """The biases, then for each block of filters its transformed weights, rounded once."""
    matrix = np.array(group.transforms.filters)
    # By value, channel and filter.
    made = np.einsum("iu,fcuv,jv->ijcf", matrix, weight.astype(np.float64), matrix, optimize=True)
    made = made.reshape(group.products, group.depth, -1)
    packed[: len(bias)] = bias
    values = packed[len(bias) :].reshape(group.products, -1)
    for block in group.blocks:
        for first in range(block.first, _end(block, 1), block.width):
            part = made[:, :, first : first + block.width].reshape(group.products, -1)
            begin = first * group.depth
            values[:, begin : begin + part.shape[1]] = part


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
