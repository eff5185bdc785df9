"""Convolutions as LLVM code: register tiles, with activation and pooling at their end.

Whether lanes are images or output channels is decided by two small functions: how an activation is
fetched, and how a weight is. One of them is a vector in memory, the other a broadcast float.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import groupby

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.elementary import tanh
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.schedule import ConvolutionGroup, average_factor
from tilewright.fuse.cpu.tiles import Block, Span

# A kernel with more taps than this loops over its rows instead of being unrolled.
UNROLLED_TAPS = 9


def convolution(f: Function, group: ConvolutionGroup, before: Picture, after: Picture) -> None:
    """The tiles of rows `%first` to `%last` (in tiles), from `%x` to `%out`, with weights `%w`."""
    for row in group.rows:
        first, last = f.larger("%first", str(row.first)), f.smaller("%last", str(row.last))
        with f.loop(first, last) as y:
            for block in group.blocks:
                with f.loop(0, block.count) as b:
                    for column in group.columns:
                        with f.loop(column.first, column.last) as x:
                            Tile(f, group, before, after, block, row, column).write(y, x, b)


class Tile:
    """The code of the tiles that have the same valid taps."""

    def __init__(
        self, f: Function, group: ConvolutionGroup, before: Picture, after: Picture, block: Block,
        row: Span, column: Span,
    ) -> None:  # fmt: skip
        self.f, self.group, self.before, self.after = f, group, before, after
        self.block, self.row, self.column = block, row, column
        self.width, self.packed = block.width, block.packed
        # Items that have a vector for each position, and the sums before the packed ones.
        self.full = block.width - (block.packed > 1)
        self.positions = [(dy, dx) for dy in range(len(row.taps)) for dx in range(len(column.taps))]
        self.activation, self.weight = (f.load, f.spread) if group.unit == 1 else (f.spread, f.load)

    def write(self, y: Value, x: Value, number: Value) -> None:
        """The tile at row `y` and column `x`, for the block of that number."""
        f, group = self.f, self.group
        taps = group.stages[0].input_shape[0] * math.prod(group.layer.kernel)
        items = sum(block.width * block.count for block in group.blocks)
        item = f.add(f.mul(number, self.width), self.block.first)
        bias = f.at("%w", f.mul(item, group.unit))
        weights = f.at("%w", f.mul(f.add(f.mul(item, taps), items), group.unit))
        self._finish(self._sums(y, x, bias, weights), y, x, item)

    def _sums(self, y: Value, x: Value, bias: Value, weights: Value) -> list[Value]:
        """The sums over all taps of all input channels, by position, then item."""
        f, layer, before = self.f, self.group.layer, self.before
        kernel_y, kernel_x = layer.kernel
        unit = self.width * self.group.unit
        top = f.add(f.mul(y, self.group.tile[0] * layer.stride[0]), -layer.padding[0])
        left = f.add(f.mul(x, self.group.tile[1] * layer.stride[1]), -layer.padding[1])
        corner = f.at("%x", f.add(f.mul(top, before.pitch), f.mul(left, before.step)))

        def plane_of(channel: Value) -> tuple[Value, Value]:
            plane = f.at(corner, f.mul(channel, before.plane))
            return plane, f.at(weights, f.mul(channel, kernel_y * kernel_x * unit))

        def rows(channel: Value, sums: list[Value]) -> None:
            plane, taps = plane_of(channel)
            for low, high, valid in self._segments():
                if kernel_y * kernel_x <= UNROLLED_TAPS or high - low == 1:
                    for ky in range(low, high):
                        row(ky, plane, taps, valid, sums)
                    continue
                with f.carried_loop(low, high, list(sums)) as (index, current, carried):
                    line = f.at(plane, f.mul(index, before.pitch))
                    row(0, line, f.at(taps, f.mul(index, kernel_x * unit)), valid, current)
                sums[:] = carried

        def row(ky: int, plane: Value, taps: Value, valid: list[int], sums: list[Value]) -> None:
            for kx in range(kernel_x):
                self._tap(plane, f.at(taps, (ky * kernel_x + kx) * unit), valid, ky, kx, sums)

        values = [self.weight(bias, c * self.group.unit) for c in range(self.width)]
        start = values[: self.full] * len(self.positions)
        start += values[self.full :] * math.ceil(len(self.positions) / self.packed)
        return f.accumulate(before.channels, start, rows)

    def _segments(self) -> list[tuple[int, int, list[int]]]:
        """Runs of kernel rows that are valid for the same rows of positions."""
        found: list[tuple[int, int, list[int]]] = []
        for ky in range(self.group.layer.kernel[0]):
            valid = [dy for dy, (low, high) in enumerate(self.row.taps) if low <= ky < high]
            if found and found[-1][2] == valid:
                found[-1] = (found[-1][0], ky + 1, valid)
            else:
                found.append((ky, ky + 1, valid))
        return [segment for segment in found if segment[2]]

    def _tap(
        self, plane: Value, taps: Value, rows: list[int], ky: int, kx: int, sums: list[Value]
    ) -> None:
        """Multiply-add one tap for the positions that have it, in these rows."""
        f, layer = self.f, self.group.layer
        valid = [
            (place, dy, dx)
            for place, (dy, dx) in enumerate(self.positions)
            if dy in rows and self.column.taps[dx][0] <= kx < self.column.taps[dx][1]
        ]
        if not valid:
            return
        f.forget()
        weights = [self.weight(taps, c * self.group.unit) for c in range(self.width)]
        for number, places in groupby(valid, lambda position: position[0] // self.packed):
            pack = [f.constant(0)] * self.packed
            for place, dy, dx in places:
                row = dy * layer.stride[0] + ky
                column = dx * layer.stride[1] + kx
                offset = row * self.before.pitch + column * self.before.step
                activation = pack[place % self.packed] = self.activation(plane, offset)
                for c, weight in enumerate(weights[: self.full]):
                    index = place * self.full + c
                    sums[index] = f.fma(activation, weight, sums[index])
            if self.packed > 1:
                index = len(self.positions) * self.full + number
                sums[index] = f.fma(f.joined(pack), weights[-1], sums[index])

    def _sum(self, sums: list[Value], place: int, c: int) -> Value:
        """The sum of one position and item."""
        if c < self.full:
            return sums[place * self.full + c]
        packed = sums[len(self.positions) * self.full + place // self.packed]
        return self.f.part(packed, place % self.packed, self.packed)

    def _finish(self, sums: list[Value], y: Value, x: Value, item: Value) -> None:
        """Activation and pooling in registers, then the tile is stored."""
        f, group, after = self.f, self.group, self.after
        activate = activation(f, group.activation)
        across = group.unit * after.plane
        window = group.pooling.size if group.pooling else (1, 1)
        row = f.mul(y, group.tile[0] // window[0] * after.pitch)
        column = f.mul(x, group.tile[1] // window[1] * after.step)
        target = f.at("%out", f.add(f.mul(item, across), f.add(row, column)))
        factor = average_factor(group.pooling)
        windows: dict[tuple[int, int], list[int]] = {}
        for place, (dy, dx) in enumerate(self.positions):
            windows.setdefault((dy // window[0], dx // window[1]), []).append(place)
        for c in range(self.width):
            for (dy, dx), places in windows.items():
                values = [self._sum(sums, place, c) for place in places]
                if factor is None:
                    # tanh and ReLU keep order, so the largest can be taken first.
                    value = activate(_reduce(f.maximum, values))
                else:
                    total = _reduce(f.sum, [activate(v) for v in values])
                    value = f.binary("fmul", total, f.constant(factor))
                f.store(value, target, c * across + dy * after.pitch + dx * after.step)


def activation(f: Function, name: str | None) -> Callable[[Value], Value]:
    functions: dict[str | None, Callable[[Value], Value]] = {
        None: lambda x: x,
        "relu": f.relu,
        "tanh": partial(tanh, f),
    }
    return functions[name]


def _reduce(combine: Callable[[Value, Value], Value], values: list[Value]) -> Value:
    """As a tree, so that no step waits for all before it."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]
