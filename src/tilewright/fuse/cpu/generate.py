"""A schedule written out as LLVM code.

One internal function for each group of layers, named after them, and one entry for each type of
pixels:

    void network_u8(images, out, weights, scratch, ticks, first, last)

computes the images `first` to `last`. Activations lie in `scratch` as [channel][y][x][lane]; the
weights in the order they are used (`pack`). All shapes are constants. The CPU's clock is read
between the groups and what each took is added to `ticks`: for the input, then each group. On a
block of images that costs some 200 cycles of a million.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.schedule import (
    CHUNK,
    UNROLLED_TAPS,
    ChannelBlock,
    ConvolutionGroup,
    DenseGroup,
    Picture,
    PlainGroup,
    Schedule,
    Span,
    average_factor,
)
from tilewright.model.layers import Pooling
from tilewright.model.network import Network, Parameters

POINTERS = ("ptr noalias readonly %x", "ptr noalias %out",
            "ptr noalias readonly %w")  # fmt: skip
PIXEL_TYPES = {"u8": "i8", "f32": "float"}


@dataclass(frozen=True)
class Layout:
    """Where each group's output lies in the scratch memory, in floats, and how much there is."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    size: int


def layout(network: Network, plan: Schedule) -> Layout:
    """Groups alternate between two regions, the gathered ones between two more.

    What is gathered must outlive the front groups of the next block of images.
    """
    lanes = plan.target.lanes
    sizes = [picture.size for picture in plan.pictures]
    # Buffer i is the input of group i; it is gathered if that group, or one before it, is.
    front = [size * lanes for size in sizes[: plan.gathered]]
    back = [size * lanes * plan.together for size in sizes[plan.gathered :]]
    starts, end = [], 0
    for part in (front, back):
        even, odd = max(part[::2], default=0), max(part[1::2], default=0)
        starts += [end if i % 2 == 0 else end + even for i in range(len(part))]
        end += even + odd
    return Layout(tuple(starts[:-1]), tuple(starts[1:]), end)


def pack(plan: Schedule, parameters: Parameters) -> NDArray[np.float32]:
    """All parameters in one array, in the order in which the kernel reads them."""
    parts: list[NDArray[np.float32]] = []
    for group in plan.groups:
        if isinstance(group, PlainGroup):
            continue
        name = group.stages[0].name
        weight = parameters[f"{name}.weight"]
        channels = len(weight)
        bias = parameters.get(f"{name}.bias", np.zeros(channels, np.float32))
        parts.append(bias)
        flat = weight.reshape(channels, -1)
        for first, width in _each_block(group.blocks):
            parts.append(flat[first : first + width].T.ravel())
    parts.append(np.zeros(1, np.float32))
    return np.concatenate(parts)


def generate(network: Network, plan: Schedule, clock: str) -> str:
    """The whole module; `clock` is the LLVM intrinsic that reads the CPU's counter."""
    lanes = plan.target.lanes
    attributes = f'nounwind "prefer-vector-width"="{32 * lanes}"'
    vector = f"<{lanes} x float>"
    parts = [
        f"declare i64 @{clock}()",
        f"declare {vector} @llvm.maximum.v{lanes}f32({vector}, {vector})\n",
    ]
    for index, group in enumerate(plan.groups):
        make = {ConvolutionGroup: _convolution, DenseGroup: _dense, PlainGroup: _plain}[type(group)]
        function = Function(f"internal void @{symbol(group)}", POINTERS, lanes,
                            f"noinline {attributes}")  # fmt: skip
        make(function, group, *plan.pictures[index : index + 2])  # type: ignore[operator]
        parts.append(function.text())
    for suffix in PIXEL_TYPES:
        parts.append(_transpose_in(network, lanes, attributes, suffix))
        parts.append(_entry(network, plan, attributes, suffix, clock))
    return "\n".join(parts)


def symbol(group: ConvolutionGroup | DenseGroup | PlainGroup) -> str:
    return "_".join(stage.name for stage in group.stages)


def _each_block(blocks: tuple[ChannelBlock, ...]) -> list[tuple[int, int]]:
    return [(b.first + i * b.width, b.width) for b in blocks for i in range(b.count)]


# Convolutions


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


# From images to lanes and back


def _transpose_in(network: Network, lanes: int, attributes: str, suffix: str) -> str:
    """Images `%first` to `%last - 1`, at most one a lane, into [pixel][lane]; lanes left over
    repeat the last image. Pixels are normalised on the way."""
    type_ = PIXEL_TYPES[suffix]
    pixels = math.prod(network.input.shape)
    f = Function(
        f"internal void @input_{suffix}",
        ("ptr noalias readonly %images", "ptr noalias %out", "i64 %first",
         "i64 %last"),
        lanes, f"noinline {attributes}",
    )  # fmt: skip
    final = f.add("%last", -1)
    images = [
        f.at("%images", f.mul(f.smaller(f.add("%first", lane), final), pixels), type_)
        for lane in range(lanes)
    ]
    row = f"<{lanes} x {type_}>"

    def zipped(a: Value, b: Value, half: int) -> Value:
        """The first or second halves of two rows, element by element in turn."""
        order = [half * lanes // 2 + i // 2 + (lanes if i % 2 else 0) for i in range(lanes)]
        places = ", ".join(f"i32 {place}" for place in order)
        return f.op(f"shufflevector {row} {a}, {row} {b}, <{lanes} x i32> <{places}>")

    def values(bytes_: Value) -> Value:
        if suffix == "f32":
            return bytes_
        number = f.op(f"uitofp {row} {bytes_} to {f.vector}")
        scale, shift = f.constant(network.input.scale), f.constant(network.input.shift)
        return f.fma(number, scale, shift)

    whole = pixels // lanes * lanes
    with f.loop(0, whole, lanes) as p:
        rows = [f.op(f"load {row}, ptr {f.at(image, p, type_)}, align 1") for image in images]
        for _ in range(lanes.bit_length() - 1):
            half = lanes // 2
            rows = [zipped(rows[i // 2], rows[i // 2 + half], i % 2) for i in range(lanes)]
        target = f.vector_at("%out", p)
        for index, value in enumerate(rows):
            f.store(values(value), target, index)
    with f.loop(whole, pixels) as p:
        gathered = "poison"
        for lane, image in enumerate(images):
            value = f.op(f"load {type_}, ptr {f.at(image, p, type_)}")
            gathered = f.op(f"insertelement {row} {gathered}, {type_} {value}, i32 {lane}")
        f.store(values(gathered), f.vector_at("%out", p))
    return f.text()


def _entry(network: Network, plan: Schedule, attributes: str, suffix: str, clock: str) -> str:
    """The loop over images: blocks of one vector, gathered to several before large products."""
    lanes, gathered, together = plan.target.lanes, plan.gathered, plan.together
    places = layout(network, plan)
    f = Function(
        f"void @network_{suffix}",
        ("ptr noalias %images", "ptr noalias %out", "ptr noalias %weights",
         "ptr noalias %scratch", "ptr noalias %ticks", "i64 %first", "i64 %last"),
        lanes, attributes,
    )  # fmt: skip
    offsets = _weight_offsets(plan)

    def ticks(index: int, since: Value) -> Value:
        """Add the time since then to a counter; returns the time now."""
        now = f.op(f"call i64 @{clock}()")
        counter = f.at("%ticks", index, "i64")
        before = f.op(f"load i64, ptr {counter}")
        f.do(f"store i64 {f.add(before, f.op(f'sub i64 {now}, {since}'))}, ptr {counter}")
        return now

    def call(index: int, shift_in: Value | int = 0, shift_out: Value | int = 0) -> None:
        source = f.vector_at(f.at("%scratch", places.inputs[index]), shift_in)
        target = f.vector_at(f.at("%scratch", places.outputs[index]), shift_out)
        weights = f.at("%weights", offsets[index])
        name = symbol(plan.groups[index])
        f.do(f"call void @{name}(ptr {source}, ptr {target}, ptr {weights})")

    with f.loop("%first", "%last", lanes * together) as start:
        left = f.op(f"sub i64 %last, {start}")
        filled = f.op(f"sdiv i64 {f.add(left, lanes - 1)}, {lanes}")
        with f.loop(0, f.smaller(filled, str(together))) as block:
            now = f.op(f"call i64 @{clock}()")
            begin = f.add(start, f.mul(block, lanes))
            end = f.smaller(f.add(begin, lanes), "%last")
            shift = f.mul(block, plan.pictures[gathered].size)
            into = f.vector_at(f.at("%scratch", places.inputs[0]), 0 if gathered else shift)
            f.do(f"call void @input_{suffix}(ptr %images, ptr {into}, i64 {begin}, i64 {end})")
            now = ticks(0, now)
            for index in range(gathered):
                call(index, 0, shift if index == gathered - 1 else 0)
                now = ticks(1 + index, now)
        now = f.op(f"call i64 @{clock}()")
        for index in range(gathered, len(plan.groups)):
            group = plan.groups[index]
            if isinstance(group, DenseGroup) and group.images > 1:
                call(index)
            else:
                sizes = [picture.size for picture in plan.pictures[index : index + 2]]
                for block_index in range(together):
                    call(index, *(block_index * size for size in sizes))
            now = ticks(1 + index, now)
        _transpose_out(f, network, f.at("%scratch", places.outputs[-1]), start, lanes * together)
    return f.text()


def _transpose_out(f: Function, network: Network, result: Value, start: Value, images: int) -> None:
    """From [block][feature][lane] to [image][feature], for the images that there are."""
    outputs = math.prod(network.output_shape)
    end = f.smaller(f.add(start, images), "%last")
    with f.loop(start, end) as image:
        relative = f.op(f"sub i64 {image}, {start}")
        block = f.op(f"sdiv i64 {relative}, {f.lanes}")
        lane = f.op(f"srem i64 {relative}, {f.lanes}")
        with f.loop(0, outputs) as o:
            place = f.add(f.mul(f.add(f.mul(block, outputs), o), f.lanes), lane)
            value = f.op(f"load float, ptr {f.at(result, place)}")
            f.do(f"store float {value}, ptr {f.at('%out', f.add(f.mul(image, outputs), o))}")


def _weight_offsets(plan: Schedule) -> list[int]:
    offsets, position = [], 0
    for group in plan.groups:
        offsets.append(position)
        if not isinstance(group, PlainGroup):
            inputs = math.prod(group.stages[0].input_shape)
            channels = (
                group.layer.filters if isinstance(group, ConvolutionGroup) else group.layer.outputs
            )
            taps = (
                group.stages[0].input_shape[0] * math.prod(group.layer.kernel)
                if isinstance(group, ConvolutionGroup)
                else inputs
            )
            position += channels * (taps + 1)
    return offsets
