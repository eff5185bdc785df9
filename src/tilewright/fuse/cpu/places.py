"""Where a group of layers finds what it takes, what it makes and its weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.grouped import ConvolutionGroup, padded_channels
from tilewright.fuse.cpu.pictures import Picture


@dataclass(frozen=True)
class Places:
    """Where the first channel is: of what is read, of what is added, of what is written; and where
    the weights begin."""

    source: Value
    added: tuple[Value, ...]
    target: Value
    weights: Value


def places_of(
    f: Function, group: ConvolutionGroup, pictures: Sequence[Picture], part: Value
) -> Places:
    """Of a part of the channels that belong together."""
    source, *added, target = names(len(pictures))
    first, *others, after = (picture.plane for picture in pictures)
    filters = group.layer.filters // group.parts
    weights = padded_channels(group) * (1 + group.depth * math.prod(group.layer.kernel))

    def at(pointer: Value, distance: int) -> Value:
        return pointer if group.parts == 1 else f.at(pointer, f.mul(part, distance))

    return Places(
        at(source, group.depth * first),
        tuple(at(name, filters * plane) for name, plane in zip(added, others, strict=True)),
        at(target, filters * after),
        at("%w", weights),
    )


def names(pictures: int) -> tuple[Value, ...]:
    """What a function calls the places of what it takes and, last, of what it makes."""
    return "%x", *(f"%x{index}" for index in range(1, pictures - 1)), "%out"
