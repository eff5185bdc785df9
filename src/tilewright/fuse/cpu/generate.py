"""A schedule written out as LLVM code.

One internal function for each group of layers, named after them, and one entry for each type of
pixels:

    void network_u8(images, out, weights, scratch, ticks, first, last)

computes the images `first` to `last`. Activations lie in `scratch` as [channel][y][x][lane]; the
weights in the order they are used (`pack`). All shapes are constants. The CPU's clock is read
between the groups and what each took is added to `ticks`: for the input, then each group. That is
one reading for all the work of a group on a block of images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.groups import group_function
from tilewright.fuse.cpu.schedule import (
    ChannelBlock,
    ConvolutionGroup,
    DenseGroup,
    Group,
    PlainGroup,
    Schedule,
)
from tilewright.model.network import Network, Parameters

PIXEL_TYPES = {"u8": "i8", "f32": "float"}


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
    return np.concatenate([*parts, np.zeros(1, np.float32)])  # some networks have no parameters


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
        pictures = plan.pictures[index : index + 2]
        parts.append(group_function(group, symbol(group), lanes, attributes, *pictures))
    for suffix in PIXEL_TYPES:
        parts.append(_transpose_in(network, lanes, attributes, suffix))
        parts.append(_entry(network, plan, attributes, suffix, clock))
    return "\n".join(parts)


def symbol(group: Group) -> str:
    return "_".join(stage.name for stage in group.stages)


def _each_block(blocks: tuple[ChannelBlock, ...]) -> list[tuple[int, int]]:
    return [(b.first + i * b.width, b.width) for b in blocks for i in range(b.count)]


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
    places = layout(plan)
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
