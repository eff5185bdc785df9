"""The layers as LLVM code: one function for each kind of group in a schedule.

A function reads activations from `%x`, writes them to `%out` and finds its weights behind `%w`:
the biases first, then block by block of output channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.schedule import (
    CHUNK,
    UNROLLED_TAPS,
    ConvolutionGroup,
    DenseGroup,
    Group,
    Picture,
    PlainGroup,
    Span,
    average_factor,
)
from tilewright.model.layers import Pooling

ARGUMENTS = ("ptr noalias readonly %x", "ptr noalias %out", "ptr noalias readonly %w")


def group_function(
    group: Group, name: str, lanes: int, attributes: str, before: Picture, after: Picture
) -> str:
    """The code of a group, from activations that lie like `before` to those like `after`."""
    f = Function(f"internal void @{name}", ARGUMENTS, lanes, f"noinline {attributes}")
    if isinstance(group, ConvolutionGroup):
        _convolution(f, group, before, after)
    elif isinstance(group, DenseGroup):
        _dense(f, group, before, after)
    else:
        _plain(f, group, before, after)
    return f.text()


def _convolution(f: Function, group: ConvolutionGroup, before: Picture, after: Picture) -> None:
    layer, channels = group.layer, group.stages[0].input_shape[0]
    taps = channels * math.prod(layer.kernel)
    for row in group.rows:
        with f.loop(row.first, row.last) as y:
            for block in group.blocks:
                with f.loop(0, block.count) as b:
                    first = f.add(f.mul(b, block.width), block.first)
                    bias = f.at("%w", first)
                    weights = f.at("%w", f.add(f.mul(first, taps), layer.filters))
                    for column in group.columns:
                        with f.loop(column.first, column.last) as x:
                            sums = _tile(
                                f, group, before, block.width, row, column, y, x, bias, weights
                            )
                            _finish_tile(
                                f, group, after, block.width, row, column, sums, y, x, first
                            )


def _tile(
    f: Function, group: ConvolutionGroup, before: Picture, width: int, row: Span, column: Span,
    y: Value, x: Value, bias: Value, weights: Value,
) -> list[Value]:  # fmt: skip
    """One register tile: the sums over all taps of all input channels, by position, channel."""
    layer, line = group.layer, before.pitch
    (kernel_y, kernel_x), (stride_y, stride_x) = layer.kernel, layer.stride
    tile_y, tile_x = group.tile
    positions = [(dy, dx) for dy in range(len(row.taps)) for dx in range(len(column.taps))]
    top = f.add(f.mul(y, tile_y * stride_y), -layer.padding[0])
    left = f.add(f.mul(x, tile_x * stride_x), -layer.padding[1])
    corner = f.vector_at("%x", f.add(f.mul(top, line), left))

    def tap(plane: Value, taps: Value, dy_tap: dict[int, int], ky: int, kx: int,
            sums: list[Value]) -> None:  # fmt: skip
        """Multiply-add one tap for the positions that have it."""
        valid = [
            (place, dy, dx)
            for place, (dy, dx) in enumerate(positions)
            if dy in dy_tap and column.taps[dx][0] <= kx < column.taps[dx][1]
        ]
        if not valid:
            return
        values = [f.spread(taps, (ky * kernel_x + kx) * width + c) for c in range(width)]
        for place, dy, dx in valid:
            offset = (dy * stride_y + dy_tap[dy]) * line + dx * stride_x + kx
            activation = f.load(plane, offset, again=True)
            for c in range(width):
                index = place * width + c
                sums[index] = f.fma(activation, values[c], sums[index])

    def plane_of(channel: Value) -> tuple[Value, Value]:
        plane = f.vector_at(corner, f.mul(channel, before.plane))
        return plane, f.at(weights, f.mul(channel, kernel_y * kernel_x * width))

    def unrolled(channel: Value, sums: list[Value]) -> None:
        plane, taps = plane_of(channel)
        for ky in range(kernel_y):
            rows = {dy: ky for dy, (low, high) in enumerate(row.taps) if low <= ky < high}
            for kx in range(kernel_x):
                tap(plane, taps, rows, ky, kx, sums)

    def looped(channel: Value, sums: list[Value]) -> None:
        """Rows of a large kernel as a loop, for positions that share their valid rows."""
        plane, taps = plane_of(channel)
        for dy, (low, high) in enumerate(row.taps):
            with f.carried_loop(low, high, sums) as (ky, current, carried):
                line_start = f.vector_at(plane, f.mul(ky, line))
                row_taps = f.at(taps, f.mul(ky, kernel_x * width))
                for kx in range(kernel_x):
                    tap(line_start, row_taps, {dy: 0}, 0, kx, current)
            sums[:] = carried

    start = [f.spread(bias, c) for c in range(width)] * len(positions)
    small = kernel_y * kernel_x <= UNROLLED_TAPS
    return f.accumulate(before.channels, start, unrolled if small else looped)


def _finish_tile(
    f: Function, group: ConvolutionGroup, after: Picture, width: int, row: Span, column: Span,
    sums: list[Value], y: Value, x: Value, first: Value,
) -> None:  # fmt: skip
    """Activation and pooling in registers, then the tile is stored."""
    activate = _activation(f, group.activation)
    by_channel = [sums[c::width] for c in range(width)]
    place = f.add(f.mul(first, after.plane), f.mul(y, after.pitch))
    if group.pooling is None:
        target = f.vector_at("%out", f.add(place, f.mul(x, group.tile[1])))
        for c, values in enumerate(by_channel):
            for dx, value in enumerate(values):
                f.store(activate(value), target, c * after.plane + dx)
        return
    target = f.vector_at("%out", f.add(place, x))
    factor = average_factor(group.pooling)
    for c, values in enumerate(by_channel):
        if factor is None:
            # tanh and ReLU keep order, so the largest can be taken first.
            pooled = activate(_reduce(f.maximum, values))
        else:
            total = _reduce(lambda a, b: f.binary("fadd", a, b), [activate(v) for v in values])
            pooled = f.binary("fmul", total, f.constant(factor))
        f.store(pooled, target, c * after.plane)


def _activation(f: Function, name: str | None) -> Callable[[Value], Value]:
    return {None: lambda x: x, "relu": f.relu, "tanh": f.tanh}[name]


def _reduce(combine: Callable[[Value, Value], Value], values: list[Value]) -> Value:
    """As a tree, so that no step waits for all before it."""
    while len(values) > 1:
        pairs = [combine(a, b) for a, b in zip(values[::2], values[1::2], strict=False)]
        values = pairs + (values[-1:] if len(values) % 2 else [])
    return values[0]


# Fully connected layers


def _dense(f: Function, group: DenseGroup, before: Picture, after: Picture) -> None:
    """Sums live in the output while the inputs are taken in chunks, each read from the first cache.

    Every vector of images is a position; with several, a weight is read once for all of them.
    """
    inputs, outputs = before.size, after.size
    images = range(group.images)
    with f.loop(0, outputs) as o:
        value = f.spread(f.at("%w", o))
        for image in images:
            f.store(value, f.vector_at("%out", f.add(o, image * outputs)))
    weights = f.at("%w", outputs)
    with f.loop(0, inputs, CHUNK) as begin:
        end = f.smaller(f.add(begin, CHUNK), str(inputs))
        for block in group.blocks:
            with f.loop(0, block.count) as b:
                first = f.add(f.mul(b, block.width), block.first)
                target = f.vector_at("%out", first)
                taps = f.at(weights, f.mul(first, inputs))
                places = [(i, c) for i in images for c in range(block.width)]
                start = [f.load(target, i * outputs + c) for i, c in places]
                with f.carried_loop(begin, end, start) as (k, current, carried):
                    at = f.at(taps, f.mul(k, block.width))
                    values = [f.spread(at, c) for c in range(block.width)]
                    source = f.vector_at("%x", k)
                    for i in images:
                        activation = f.load(source, i * inputs)
                        for c in range(block.width):
                            index = i * block.width + c
                            current[index] = f.fma(activation, values[c], current[index])
                for (i, c), value in zip(places, carried, strict=True):
                    f.store(value, target, i * outputs + c)
    if group.activation:
        activate = _activation(f, group.activation)
        with f.loop(0, outputs * group.images) as o:
            place = f.vector_at("%out", o)
            f.store(activate(f.load(place)), place)


# The other layers


def _plain(f: Function, group: PlainGroup, before: Picture, after: Picture) -> None:
    (stage,) = group.stages
    if isinstance(stage.layer, Pooling):
        _pooling(f, stage.layer, before, after)
    elif stage.kind == "softmax":
        _softmax(f, before.size)
    else:
        activate = _activation(f, stage.kind)
        with f.loop(0, before.size) as i:
            f.store(activate(f.load(f.vector_at("%x", i))), f.vector_at("%out", i))


def _pooling(f: Function, layer: Pooling, before: Picture, after: Picture) -> None:
    """Windows that overlap or are large: the rows of a window as a loop, its columns unrolled."""
    factor = average_factor(layer)
    start = f.constant(0) if factor else f.constant(float("-inf"))
    with (
        f.loop(0, after.channels) as c,
        f.loop(0, after.height) as y,
        f.loop(0, after.width) as x,
    ):
        row = f.add(f.mul(c, before.plane), f.mul(y, layer.stride[0] * before.pitch))
        corner = f.vector_at("%x", f.add(row, f.mul(x, layer.stride[1])))
        with f.carried_loop(0, layer.size[0], [start]) as (ky, current, carried):
            source = f.vector_at(corner, f.mul(ky, before.pitch))
            for kx in range(layer.size[1]):
                value = f.load(source, kx)
                if factor:
                    current[0] = f.binary("fadd", current[0], value)
                else:
                    current[0] = f.maximum(current[0], value)
        result = f.binary("fmul", carried[0], f.constant(factor)) if factor else carried[0]
        place = f.add(f.add(f.mul(c, after.plane), f.mul(y, after.pitch)), x)
        f.store(result, f.vector_at("%out", place))


def _softmax(f: Function, features: int) -> None:
    with f.carried_loop(0, features, [f.constant(float("-inf"))]) as (i, current, largest):
        current[0] = f.maximum(current[0], f.load(f.vector_at("%x", i)))
    with f.carried_loop(0, features, [f.constant(0)]) as (i, current, total):
        shifted = f.binary("fsub", f.load(f.vector_at("%x", i)), largest[0])
        weight = f.exp(shifted)
        f.store(weight, f.vector_at("%out", i))
        current[0] = f.binary("fadd", current[0], weight)
    with f.loop(0, features) as i:
        place = f.vector_at("%out", i)
        f.store(f.binary("fdiv", f.load(place), total[0]), place)
