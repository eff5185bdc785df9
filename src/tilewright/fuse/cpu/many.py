"""The entry for many images: blocks of as many as a vector has lanes.

Activations lie in `scratch` as [channel][y][x][lane].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.entry import (
    ARGUMENTS,
    PIXEL_TYPES,
    Steps,
    normalised,
    runs_of_pixels,
)
from tilewright.fuse.cpu.grouped import DenseGroup
from tilewright.fuse.cpu.groups import units
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.tiles import Target
from tilewright.model.network import Network

NOWHERE: Mapping[int, Value] = MappingProxyType({})


def entry_of_many(
    network: Network, plan: Schedule, attributes: str, suffix: str, clock: str
) -> str:
    """The loop over images: blocks of one vector, gathered to several before large products."""
    lanes, gathered, together = plan.target.lanes, plan.gathered, plan.together
    f = Function(f"void @network_{suffix}", ARGUMENTS, plan.target, attributes)
    steps = Steps(f, plan, clock)
    places = steps.places.values

    def place(value: int, shifts: Mapping[int, Value]) -> Value:
        return f.at(f.at("%scratch", places[value]), shifts.get(value, 0))

    def call(index: int, shifts: Mapping[int, Value] = NOWHERE, last: Value = "") -> None:
        """A group, on values that lie further on than the first vector of images has them."""
        values = [place(value, shifts) for value in (*plan.takes[index], index + 1)]
        whole = units(plan.groups[index], plan.pictures[index + 1])
        steps.call(index, values, 0, last or whole)

    def shifted(block: Value, values: Iterable[int]) -> dict[int, Value]:
        """How far behind those of the first vector of images another one's values lie."""
        return {value: f.mul(block, plan.pictures[value].size) for value in values}

    with f.loop("%first", "%last", lanes * together) as start:
        left = f.op(f"sub i64 %last, {start}")
        filled = f.op(f"sdiv i64 {f.add(left, lanes - 1)}, {lanes}")
        filled = f.smaller(filled, str(together))
        with f.loop(0, filled) as block:
            steps.start()
            begin = f.add(start, f.mul(block, lanes))
            end = f.smaller(f.add(begin, lanes), "%last")
            shifts = shifted(block, (value for value in plan.kept if value <= gathered))
            into = place(0, shifts)
            f.do(f"call void @input_{suffix}(ptr %images, ptr {into}, i64 {begin}, i64 {end})")
            steps.count(0)
            for index in range(gathered):
                call(index, shifts)
                steps.count(1 + index)
        steps.start()
        for index in range(gathered, len(plan.groups)):
            group = plan.groups[index]
            if isinstance(group, DenseGroup) and group.images > 1:
                call(index, last=filled)
            else:
                with f.loop(0, filled) as block:
                    call(index, shifted(block, (*plan.takes[index], index + 1)))
            steps.count(1 + index)
        _transpose_out(f, network, f.at("%scratch", places[-1]), start, lanes * together)
    return _transpose_in(network, plan.target, attributes, suffix) + "\n" + f.text()


def _transpose_in(network: Network, cpu: Target, attributes: str, suffix: str) -> str:
    """Images `%first` to `%last - 1`, at most one a lane, into [pixel][lane]; lanes left over
    repeat the last image. Pixels are normalised on the way."""
    type_, lanes = PIXEL_TYPES[suffix], cpu.lanes
    pixels = math.prod(network.input.shape)
    f = Function(
        f"internal void @input_{suffix}",
        ("ptr noalias readonly %images", "ptr noalias %out", "i64 %first",
         "i64 %last"),
        cpu, f"noinline {attributes}",
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

    with runs_of_pixels(f, network.input) as (channel, first, count):
        whole = count // lanes * lanes
        with f.loop(0, whole, lanes) as i:
            p = f.add(i, first)
            rows = [f.op(f"load {row}, ptr {f.at(image, p, type_)}, align 1") for image in images]
            for _ in range(lanes.bit_length() - 1):
                half = lanes // 2
                rows = [zipped(rows[i // 2], rows[i // 2 + half], i % 2) for i in range(lanes)]
            target = f.at("%out", f.mul(p, lanes))
            for index, value in enumerate(rows):
                value = normalised(f, network.input, suffix, value, channel)
                f.store(value, target, index * lanes)
        with f.loop(whole, count) as i:
            p = f.add(i, first)
            gathered = "poison"
            for lane, image in enumerate(images):
                value = f.op(f"load {type_}, ptr {f.at(image, p, type_)}, align 1")
                gathered = f.op(f"insertelement {row} {gathered}, {type_} {value}, i32 {lane}")
            value = normalised(f, network.input, suffix, gathered, channel)
            f.store(value, "%out", f.mul(p, lanes))
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
