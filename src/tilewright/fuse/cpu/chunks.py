"""Convolutions by Winograd's algorithm as LLVM code: chunk by chunk of tiles (`winograd`).

In `%work` lie, as vectors of images, the transformed inputs of a chunk, [value][channel][tile], and
behind them what the filters make of them, [value][filter][tile]. Weights are transformed when they
are packed: [value][block][channel][filter], behind the biases. While a value is multiplied, its
inputs stay in the first cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.convolution import finished
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.places import names
from tilewright.fuse.cpu.tiles import Block
from tilewright.fuse.cpu.transforms import Term, transformed
from tilewright.fuse.cpu.winograd import Edge, Strip, WinogradGroup


def winograd(f: Function, group: WinogradGroup, before: Sequence[Picture], after: Picture) -> None:
    """The chunks of rows `%first` to `%last` (in chunks), from `%x` to `%out`, with weights `%w`
    and memory `%work`."""
    for row in group.rows:
        first, last = f.larger("%first", str(row.first)), f.smaller("%last", str(row.last))
        with f.loop(first, last) as y:
            for column in group.columns:
                with f.loop(column.first, column.last) as x:
                    Chunk(f, group, (*before, after), row, column).write(y, x)


@dataclass(frozen=True)
class Tile:
    """Which tile of a chunk it is, its first position in the picture, and its edges."""

    number: Value
    corner: tuple[Value, Value]
    row: Edge
    column: Edge


class Chunk:
    """The code of the chunks whose tiles have the same edges."""

    def __init__(
        self, f: Function, group: WinogradGroup, pictures: Sequence[Picture], row: Strip,
        column: Strip,
    ) -> None:  # fmt: skip
        self.f, self.group = f, group
        self.before, *self.others, self.after = pictures
        self.rows, self.columns = row.tiles, column.tiles
        self.tiles = len(row.tiles) * len(column.tiles)
        self.size = len(group.transforms.inputs)
        self.inputs, self.sums = (distance * f.lanes for distance in group.distances)
        self.products = f.at("%work", group.products * self.inputs)

    def write(self, y: Value, x: Value) -> None:
        """The chunk at row `y` and column `x`."""
        f, group = self.f, self.group
        position = f.mul(y, group.tile[0]), f.mul(x, group.tile[1])
        with f.loop(0, group.depth) as channel:
            plane = f.at("%x", f.mul(channel, self.before.plane))
            for tile in self._each(position):
                self._transform(plane, channel, tile)
        with f.loop(0, group.products) as value:
            for block in group.blocks:
                with f.loop(0, block.count) as number:
                    first = f.add(f.mul(number, block.width), block.first)
                    self._multiply(value, block, first)
        with f.loop(0, group.layer.filters) as channel:
            for tile in self._each(position):
                self._transform_back(channel, tile)

    def _each(self, position: tuple[Value, Value]) -> Iterator[Tile]:
        """The tiles, while their code is written: those of a row with the same edges share it."""
        f, side, wide = self.f, self.group.transforms.outputs, len(self.columns)
        for i, row in enumerate(self.rows):
            top, first = f.add(position[0], i * side), 0
            for column, alike in itertools.groupby(self.columns):
                count = len(list(alike))
                with f.rounds(count) as index:
                    j = f.add(index, first)
                    corner = top, f.add(f.mul(j, side), position[1])
                    yield Tile(f.add(j, i * wide), corner, row, column)
                first += count

    def _vector(self, channel: Value, tile: Tile) -> Value:
        """Where a tile's first value of a channel or filter lies, from the first of all."""
        f = self.f
        return f.mul(f.add(f.mul(channel, self.tiles), tile.number), f.lanes)

    def _transform(self, plane: Value, channel: Value, tile: Tile) -> None:
        """The inputs of a tile in a channel, along y and then along x."""
        f, group, before = self.f, self.group, self.before
        matrix = group.transforms.inputs
        above, left, _, _ = group.layer.padding
        row, column = tile.row, tile.column
        top, start = f.add(tile.corner[0], -above), f.add(tile.corner[1], -left)
        corner = f.at(plane, f.add(f.mul(top, before.pitch), f.mul(start, before.step)))
        size = self.size

        def value(y: int, x: int) -> Term:
            if not row.low <= y < row.high or not column.low <= x < column.high:
                return None
            return f.load(corner, y * before.pitch + x * before.step)

        target = f.at("%work", self._vector(channel, tile))
        f.forget()
        down = [transformed(f, matrix, [value(y, x) for y in range(size)]) for x in range(size)]
        for u in range(size):
            for v, each in enumerate(transformed(f, matrix, [line[u] for line in down])):
                f.store(each or f.constant(0), target, (u * size + v) * self.inputs)

    def _multiply(self, value: Value, block: Block, first: Value) -> None:
        """What the filters of a block make of one of the transformed values."""
        f, group = self.f, self.group
        tiles, width = self.tiles, block.width
        inputs = f.at("%work", f.mul(value, self.inputs))
        begin = f.add(f.mul(value, group.layer.filters), first)
        weights = f.at("%w", f.add(f.mul(begin, group.depth), group.layer.filters))

        def add(channel: Value, sums: list[Value]) -> None:
            f.forget()
            place = f.at(inputs, f.mul(channel, tiles * f.lanes))
            row = f.at(weights, f.mul(channel, width))
            loads = [partial(f.load, place, tile * f.lanes) for tile in range(tiles)]
            spreads = [partial(f.spread, row, k) for k in range(width)]
            # Registers hold the fewer of both, and one of the others at a time.
            held, others = sorted((loads, spreads), key=len)
            kept = [each() for each in held]
            for i, other in enumerate(others):
                value = other()
                for j, each in enumerate(kept):
                    k, tile = (i, j) if held is loads else (j, i)
                    sums[k * tiles + tile] = f.fma(each, value, sums[k * tiles + tile])

        made = f.accumulate(group.depth, [f.constant(0)] * (tiles * width), add)
        place = f.add(f.mul(value, self.sums), f.mul(first, tiles * f.lanes))
        target = f.at(self.products, place)
        for index, each in enumerate(made):
            f.store(each, target, index * f.lanes)

    def _transform_back(self, channel: Value, tile: Tile) -> None:
        """The outputs of a tile for a filter, with what follows them."""
        f, group = self.f, self.group
        matrix, size = group.transforms.inverse, self.size
        rows, columns = tile.row.outputs, tile.column.outputs
        source = f.at(self.products, self._vector(channel, tile))

        def value(u: int, v: int) -> Value:
            return f.load(source, (u * size + v) * self.sums)

        f.forget()
        down = [
            transformed(f, matrix[:rows], [value(u, v) for u in range(size)]) for v in range(size)
        ]
        bias = f.spread("%w", channel)
        sums: dict[tuple[int, int], Value] = {}
        for y in range(rows):
            line = transformed(f, matrix[:columns], [each[y] for each in down])
            sums |= {(y, x): f.sum(each, bias) for x, each in enumerate(line) if each is not None}
        added = names(len(self.others) + 2)[1:-1]
        for name, picture in zip(added, self.others, strict=True):
            other = self._place(name, picture, channel, tile.corner, (1, 1))
            for (y, x), each in sums.items():
                more = f.load(other, y * picture.pitch + x * picture.step)
                sums[y, x] = f.sum(each, more)
        high, wide = group.window
        target = self._place("%out", self.after, channel, tile.corner, group.window)
        for y, x in itertools.product(range(rows // high), range(columns // wide)):
            window = itertools.product(
                range(y * high, (y + 1) * high), range(x * wide, (x + 1) * wide)
            )
            result = finished(f, group, [sums[each] for each in window])
            f.store(result, target, y * self.after.pitch + x * self.after.step)

    def _place(
        self, pointer: Value, picture: Picture, channel: Value, position: tuple[Value, Value],
        window: tuple[int, int],
    ) -> Value:  # fmt: skip
        """Where a channel's value at a position is, in a picture of windows."""
        f = self.f
        y, x = (
            each if size == 1 else f.op(f"sdiv exact i64 {each}, {size}")
            for each, size in zip(position, window, strict=True)
        )
        inside = f.add(f.mul(y, picture.pitch), f.mul(x, picture.step))
        return f.at(pointer, f.add(f.mul(channel, picture.plane), inside))
