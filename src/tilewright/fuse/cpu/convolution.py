"""Convolutions as LLVM code: register tiles, with activation and pooling at their end.

Whether lanes are images or output channels is decided by two small functions: how an activation is
fetched, and how a weight is. One of them is a vector in memory, the other a broadcast float.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.grouped import (
    UNROLLED_COLUMNS,
    UNROLLED_TAPS,
    ConvolutionGroup,
    average_factor,
)
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.places import Places, places_of
from tilewright.fuse.cpu.tiles import Block, Border, Span
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.layers import Elementwise


def convolution(
    f: Function, group: ConvolutionGroup, before: Sequence[Picture], after: Picture
) -> None:
    """The tiles of rows `%first` to `%last` (in tiles), or of such blocks of filters, from `%x` to
    `%out`, with weights `%w`."""
    rows, columns = group.pieces
    pictures = (*before, after)

    def tiles(
        places: Places, block: Block, b: Value, row: Span | Border, y: Value, number: Value
    ) -> None:
        """The tiles of a row for a block."""
        for column in columns:
            with f.loop(*_bounds(f, group, column, number)) as x:
                Tile(f, group, pictures, places, block, row, column).write(y, x, b)

    if group.by_blocks:
        places = places_of(f, group, pictures, "0")
        for block, b in blocks_asked_for(f, group.blocks):
            for row in rows:
                with f.loop(row.first, row.last) as y:
                    tiles(places, block, b, row, y, "0")
        return
    all_columns = group.columns[-1].last if group.columns else 1
    for row in rows:
        # Rows are shared out in tiles, also those at the border.
        each = group.tile[0] // group.window[0] if isinstance(row, Border) else 1
        first = f.larger(f.mul("%first", each), str(row.first))
        last = f.smaller(f.mul("%last", each), str(row.last))
        with (
            f.loop(first, last) as y,
            f.rounds(group.parts) as part,
            f.rounds(math.ceil(all_columns / group.columns_at_once)) as number,
        ):
            places = places_of(f, group, pictures, part)
            for block in group.blocks:
                with f.loop(0, block.count) as b:
                    tiles(places, block, b, row, y, number)


def blocks_asked_for(f: Function, blocks: Sequence[Block]) -> Iterator[tuple[Block, Value]]:
    """In a loop over blocks `%first` to `%last` of all: what they are like, and which of those."""
    index = 0
    for block in blocks:
        first, last = f.larger("%first", str(index)), f.smaller("%last", str(index + block.count))
        with f.loop(first, last) as i:
            yield block, f.add(i, -index)
        index += block.count


def _bounds(
    f: Function, group: ConvolutionGroup, column: Span | Border, number: Value
) -> tuple[Value | int, Value | int]:
    """The tiles of a piece that are among those done at once, of which this is the number."""
    if number == "0":
        return column.first, column.last
    each = group.tile[1] // group.window[1] if isinstance(column, Border) else 1
    first = f.mul(number, group.columns_at_once * each)
    last = f.add(first, group.columns_at_once * each)
    return f.larger(first, str(column.first)), f.smaller(last, str(column.last))


@dataclass(frozen=True)
class Run:
    """Taps `low` to `high` along an axis, and which rows or columns of positions have them."""

    low: Value | int
    high: Value | int
    valid: list[int]
    loop: bool


class Tile:
    """The code of the tiles that have the same valid taps, or that find theirs while they run."""

    def __init__(
        self, f: Function, group: ConvolutionGroup, pictures: Sequence[Picture], places: Places,
        block: Block, row: Span | Border, column: Span | Border,
    ) -> None:  # fmt: skip
        self.f, self.group, self.places = f, group, places
        self.before, *self.others, self.after = pictures
        self.block, self.pieces = block, (row, column)
        self.width, self.packed = block.width, block.packed
        # Items that have a vector for each position, and the sums before the packed ones.
        self.full = block.width - (block.packed > 1)
        # How far it is to the next tile, and how many positions this one has along both axes.
        pieces = list(zip(self.pieces, group.tile, group.window, strict=True))
        self.distance = [w if isinstance(piece, Border) else t for piece, t, w in pieces]
        self.size = [w if isinstance(piece, Border) else len(piece.taps) for piece, _, w in pieces]
        self.positions = [(dy, dx) for dy in range(self.size[0]) for dx in range(self.size[1])]
        self.activation, self.weight = (f.load, f.spread) if group.unit == 1 else (f.spread, f.load)
        if group.channelwise:
            self.activation = f.load

    def write(self, y: Value, x: Value, number: Value) -> None:
        """The tile at row `y` and column `x`, for the block of that number."""
        f, group = self.f, self.group
        taps = group.depth * math.prod(group.layer.kernel)
        items = sum(block.width * block.count for block in group.blocks)
        item = f.add(f.mul(number, self.width), self.block.first)
        bias = f.at(self.places.weights, f.mul(item, group.unit))
        behind = f.mul(f.add(f.mul(item, taps), items), group.unit)
        weights = f.at(self.places.weights, behind)
        source = self.places.source
        if group.channelwise:
            source = f.at(source, f.mul(item, group.unit))
        self._finish(self._sums(y, x, source, bias, weights), y, x, item)

    def _sums(self, y: Value, x: Value, source: Value, bias: Value, weights: Value) -> list[Value]:
        """The sums over all taps of all input channels, by position, then item."""
        f, layer, before = self.f, self.group.layer, self.before
        kernel_y, kernel_x = layer.kernel
        apart_y, apart_x = layer.dilation
        unit = self.width * self.group.unit
        top = f.add(f.mul(y, self.distance[0] * layer.stride[0]), -layer.padding[0])
        left = f.add(f.mul(x, self.distance[1] * layer.stride[1]), -layer.padding[1])
        corner = f.at(source, f.add(f.mul(top, before.pitch), f.mul(left, before.step)))
        down, across = self._runs(0, top), self._runs(1, left)

        def plane_of(channel: Value) -> tuple[Value, Value]:
            plane = f.at(corner, f.mul(channel, before.plane))
            return plane, f.at(weights, f.mul(channel, kernel_y * kernel_x * unit))

        def rows(channel: Value, sums: list[Value]) -> None:
            plane, taps = plane_of(channel)
            for run in down:
                if not run.loop:
                    for ky in range(int(run.low), int(run.high)):
                        row(ky, plane, taps, run.valid, sums)
                    continue
                with f.carried_loop(run.low, run.high, list(sums)) as (index, current, carried):
                    line = f.at(plane, f.mul(index, apart_y * before.pitch))
                    row(0, line, f.at(taps, f.mul(index, kernel_x * unit)), run.valid, current)
                sums[:] = carried

        def row(ky: int, line: Value, taps: Value, valid: list[int], sums: list[Value]) -> None:
            for run in across:
                places = [(p, dy, dx) for p, (dy, dx) in enumerate(self.positions)
                          if dy in valid and dx in run.valid]  # fmt: skip
                if not run.loop:
                    for kx in range(int(run.low), int(run.high)):
                        at = f.at(taps, (ky * kernel_x + kx) * unit)
                        self._tap(line, at, places, ky, kx, sums)
                    continue
                with f.carried_loop(run.low, run.high, list(sums)) as (index, current, carried):
                    at = f.at(taps, f.mul(f.add(index, ky * kernel_x), unit))
                    column = f.at(line, f.mul(index, apart_x * before.step))
                    self._tap(column, at, places, ky, 0, current)
                sums[:] = carried

        values = [self.weight(bias, c * self.group.unit) for c in range(self.width)]
        start = values[: self.full] * len(self.positions)
        start += values[self.full :] * math.ceil(len(self.positions) / self.packed)
        return f.accumulate(self.group.depth, start, rows)

    def _runs(self, axis: int, start: Value) -> list[Run]:
        """The taps along an axis; the first position of the tile reads from `start` on."""
        f, layer, piece = self.f, self.group.layer, self.pieces[axis]
        kernel, size = layer.kernel[axis], self.group.stages[0].input_shape[1 + axis]
        apart = layer.dilation[axis]
        if isinstance(piece, Border):
            runs = []
            for d in range(self.size[axis]):
                outside = f.op(f"sub i64 {-d * layer.stride[axis]}, {start}")
                # The first tap that is not before, and the first behind: none of them is negative.
                inside, behind = (f.over(each, apart) for each in (outside, f.add(outside, size)))
                high = f.smaller(behind, str(kernel))
                runs.append(Run(f.larger(inside, "0"), high, [d], loop=True))
            return runs
        found: list[tuple[int, int, list[int]]] = []
        for k in range(kernel):
            valid = [d for d, (low, high) in enumerate(piece.taps) if low <= k < high]
            if found and found[-1][2] == valid:
                found[-1] = (found[-1][0], k + 1, valid)
            else:
                found.append((k, k + 1, valid))
        long = kernel > UNROLLED_COLUMNS if axis else math.prod(layer.kernel) > UNROLLED_TAPS
        return [
            Run(low, high, valid, loop=long and high - low > 1)
            for low, high, valid in found
            if valid
        ]

    def _tap(
        self, plane: Value, taps: Value, places: list[tuple[int, int, int]], ky: int, kx: int,
        sums: list[Value],
    ) -> None:  # fmt: skip
        """Multiply-add one tap for the positions that have it."""
        f, layer = self.f, self.group.layer
        f.forget()
        weights = [self.weight(taps, c * self.group.unit) for c in range(self.width)]
        for number, together in itertools.groupby(places, lambda place: place[0] // self.packed):
            pack = [f.constant(0)] * self.packed
            for place, dy, dx in together:
                row = dy * layer.stride[0] + ky * layer.dilation[0]
                column = dx * layer.stride[1] + kx * layer.dilation[1]
                offset = row * self.before.pitch + column * self.before.step
                activation = pack[place % self.packed] = self.activation(plane, offset)
                for c, weight in enumerate(weights[: self.full]):
                    index = place * self.full + c
                    sums[index] = f.fma(activation, weight, sums[index])
                # Where lanes are images, tiles leave one register free, or none: 6 channels of 4
                # positions were spilled in the midst of every row of taps, which took AVX-512 up to
                # 1.37 times as long. (Without multiply-adds, on old x86, products need registers,
                # too, and some spill.)
                if self.group.unit == 1:
                    f.forget(sums[place * self.full : (place + 1) * self.full])
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
        """Additions, activation and pooling in registers, then the tile is stored."""
        f, group, after = self.f, self.group, self.after
        across = group.unit * after.plane
        window = group.window
        row = f.mul(y, self.distance[0] // window[0] * after.pitch)
        column = f.mul(x, self.distance[1] // window[1] * after.step)
        target = f.at(self.places.target, f.add(f.mul(item, across), f.add(row, column)))
        added = [self._added(number, y, x, item) for number in range(len(self.others))]
        windows: dict[tuple[int, int], list[int]] = {}
        for place, (dy, dx) in enumerate(self.positions):
            windows.setdefault((dy // window[0], dx // window[1]), []).append(place)
        for c in range(self.width):
            for (dy, dx), places in windows.items():
                values = [self._sum(sums, place, c) for place in places]
                for place, other in itertools.product(range(len(places)), added):
                    values[place] = f.sum(values[place], other(places[place], c))
                value = finished(f, group, values)
                offset = c * across + dy * after.pitch + dx * after.step
                if group.left_over:
                    f.store_some(self._channels(c), value, target, offset)
                else:
                    f.store(value, target, offset)

    def _channels(self, c: int) -> int:
        """How many channels of an item there are."""
        last = self.block == self.group.blocks[-1] and c == self.width - 1
        return self.group.left_over if last else self.group.unit

    def _added(self, number: int, y: Value, x: Value, item: Value) -> Callable[[int, int], Value]:
        """How the value that is added is fetched, by position and item."""
        f, group, picture = self.f, self.group, self.others[number]
        across = group.unit * picture.plane
        row = f.mul(y, self.distance[0] * picture.pitch)
        column = f.mul(x, self.distance[1] * picture.step)
        source = f.at(self.places.added[number], f.add(f.mul(item, across), f.add(row, column)))

        def value(place: int, c: int) -> Value:
            dy, dx = self.positions[place]
            offset = c * across + dy * picture.pitch + dx * picture.step
            if group.left_over:
                return f.load_some(self._channels(c), source, offset)
            return f.load(source, offset)

        return value


def finished(f: Function, group: ConvolutionGroup | WinogradGroup, values: list[Value]) -> Value:
    """The values of a pooling window, or a single one, after activation and pooling."""
    activate, factor = activation(f, group.activation), average_factor(group.pooling)
    if factor is not None:
        total = _reduce(f.sum, [activate(v) for v in values])
        return f.binary("fmul", total, f.constant(factor))
    # The largest can be taken first, where that is the same.
    if group.activation is None or group.activation.keeps_order:
        return activate(_reduce(f.maximum, values))
    return _reduce(f.maximum, [activate(v) for v in values])


def activation(f: Function, layer: Elementwise | None) -> Callable[[Value], Value]:
    return lambda x: x if layer is None else layer.llvm(f, x)


def _reduce(combine: Callable[[Value, Value], Value], values: list[Value]) -> Value:
    """As a tree, so that no step waits for all before it."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]
