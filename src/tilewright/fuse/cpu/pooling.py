"""Pooling as LLVM code where no convolution takes it along: windows that overlap, are large or
reach over the edges of the picture."""

from __future__ import annotations

import math

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.grouped import UNROLLED_COLUMNS, average_factor
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.tiles import Border, Span, spans
from tilewright.model.layers import AveragePool, Pooling


def pooling(f: Function, layer: Pooling, unit: int, before: Picture, after: Picture) -> None:
    """The rows of a window as a loop, a few columns unrolled."""
    within = max(layer.beyond((before.channels, before.height, before.width))) <= 0
    columns: tuple[Span | Border, ...] = spans(
        after.width, 1, layer.size[1], layer.stride[1], layer.padding[1], before.width
    )
    if not within and layer.size[1] > UNROLLED_COLUMNS:
        columns = (Border(0, after.width),)
    with (
        f.loop(0, math.ceil(after.channels / unit)) as c,
        f.loop("%first", "%last") as y,
    ):
        for column in columns:
            with f.loop(column.first, column.last) as x:
                _window(f, layer, unit, before, after, within, column, c, y, x)


def _window(
    f: Function, layer: Pooling, unit: int, before: Picture, after: Picture, within: bool,
    column: Span | Border, c: Value, y: Value, x: Value,
) -> None:  # fmt: skip
    average = isinstance(layer, AveragePool)
    combine = f.sum if average else f.maximum
    start = f.constant(0) if average else f.constant(float("-inf"))
    top = f.add(f.mul(y, layer.stride[0] * before.pitch), -layer.padding[0] * before.pitch)
    row = f.add(f.mul(c, unit * before.plane), top)
    left = f.add(f.mul(x, layer.stride[1] * before.step), -layer.padding[1] * before.step)
    corner = f.at("%x", f.add(row, left))
    low, high = ("0", str(layer.size[0])) if within else _taps(f, layer, 0, y, before.height)
    if isinstance(column, Border):
        first, last = _taps(f, layer, 1, x, before.width)
    else:
        first, last = (str(tap) for tap in column.taps[0])
    with f.carried_loop(low, high, [start]) as (ky, current, carried):
        source = f.at(corner, f.mul(ky, before.pitch))
        if isinstance(column, Span) and layer.size[1] <= UNROLLED_COLUMNS:
            for column_tap in range(*column.taps[0]):
                current[0] = combine(current[0], f.load(source, column_tap * before.step))
        else:
            with f.carried_loop(first, last, current) as (kx, now, along):
                now[0] = combine(now[0], f.load(source, f.mul(kx, before.step)))
            current[:] = along
    result = carried[0]
    if average and within:
        result = f.binary("fmul", result, f.constant(average_factor(layer) or 1.0))
    elif isinstance(layer, AveragePool):
        rows, columns = (
            _counted(f, layer, 0, y, before.height),
            _counted(f, layer, 1, x, before.width),
        )
        area = f.op(f"sitofp i64 {f.op(f'mul i64 {rows}, {columns}')} to float")
        result = f.binary("fdiv", result, f.splat_of(area))
    row = f.add(f.mul(c, unit * after.plane), f.mul(y, after.pitch))
    f.store(result, "%out", f.add(row, f.mul(x, after.step)))


def _taps(f: Function, layer: Pooling, axis: int, place: Value, size: int) -> tuple[Value, Value]:
    """The first tap of a window inside the picture along an axis, and the first behind it."""
    outside = f.add(f.mul(place, -layer.stride[axis]), layer.padding[axis])
    return (
        f.larger(outside, "0"),
        f.smaller(f.add(outside, size), str(layer.size[axis])),
    )


def _counted(f: Function, layer: AveragePool, axis: int, place: Value, size: int) -> Value:
    """By how many values along an axis a window's sum is divided."""
    before, after = layer.padding[axis], layer.padding[axis + 2]
    if not layer.count_padding:
        before = after = 0
    first = f.add(f.mul(place, layer.stride[axis]), -layer.padding[axis])
    last = f.smaller(f.add(first, layer.size[axis]), str(size + after))
    return f.op(f"sub i64 {last}, {f.larger(first, str(-before))}")
