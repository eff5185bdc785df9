"""The entries for few images: one at a time, alone or by several threads together.

A network is a sequence of phases, each a function

    void phase0_u8(image, out, weights, scratch, ticks, first, last)

that computes the units `first` to `last` of its groups for one image. Whoever calls it must see to
it that the phase before is complete; the units of one phase may be computed by different threads on
the same scratch memory. `network_u8` is all phases of one image after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.fuse.cpu.code import Function
from tilewright.fuse.cpu.entry import (
    ARGUMENTS,
    PIXEL_TYPES,
    Steps,
    normalised,
    runs_of_pixels,
)
from tilewright.fuse.cpu.groups import units
from tilewright.fuse.cpu.joins import place_of
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.schedule import Schedule, reads_pixels
from tilewright.model.network import Network

# What is worth sharing out, in FLOP: about a microsecond of one core.
SHARED_FLOP = 100_000


@dataclass(frozen=True)
class Phase:
    """Groups `first` to `last` (without it), in so many units, taken `step` at a time."""

    first: int
    last: int
    units: int
    step: int


def phases(plan: Schedule) -> tuple[Phase, ...]:
    """Groups with enough work are cut into units of their own phase; others go together.

    The pixels are turned into values at the beginning of the first phase, which therefore has a
    single unit. It may have no group at all: where pixels are read in place, it does nothing then.
    The results are handed out at the end of the last phase, which has a single unit, too: one who
    hands out what another has not computed yet may write it after the other wrote what is right.
    """
    found = [Phase(0, 0, 1, 1)]
    for index, group in enumerate(plan.groups):
        parts = units(group, plan.pictures[index + 1])
        work = group.executed_flops
        if parts > 1 and work >= 2 * SHARED_FLOP:
            step = math.ceil(parts / math.floor(work / SHARED_FLOP))
            found.append(Phase(index, index + 1, parts, step))
        elif found[-1].units == 1:
            found[-1] = Phase(found[-1].first, index + 1, 1, 1)
        else:
            found.append(Phase(index, index + 1, 1, 1))
    if found[-1].units > 1:
        found.append(Phase(len(plan.groups), len(plan.groups), 1, 1))
    return tuple(found)


def read_in_place(plan: Schedule, suffix: str) -> bool:
    """Whether the image is read where it is: values as they lie, one by one."""
    return suffix == "f32" and reads_pixels(plan)


def entries_of_few(
    network: Network, plan: Schedule, attributes: str, suffix: str, clock: str
) -> str:
    """A function for each phase, and the one that goes through them all."""
    found = phases(plan)
    parts = [
        _phase(network, plan, phase, index, index == len(found) - 1, attributes, suffix, clock)
        for index, phase in enumerate(found)
    ]
    f = Function(f"void @network_{suffix}", ARGUMENTS, plan.target.lanes, attributes)
    pixels, outputs = math.prod(network.input.shape), math.prod(network.output_shape)
    with f.loop("%first", "%last") as image:
        source = f.at("%images", f.mul(image, pixels), PIXEL_TYPES[suffix])
        target = f.at("%out", f.mul(image, outputs))
        for index, phase in enumerate(found):
            f.do(
                f"call void @phase{index}_{suffix}(ptr {source}, ptr {target}, ptr %weights, "
                f"ptr %scratch, ptr %ticks, i64 0, i64 {phase.units})"
            )
    return "\n".join([*parts, f.text()])


def _phase(
    network: Network, plan: Schedule, phase: Phase, index: int, final: bool, attributes: str,
    suffix: str, clock: str,
) -> str:  # fmt: skip
    f = Function(f"void @phase{index}_{suffix}", ARGUMENTS, plan.target.lanes, attributes)
    steps = Steps(f, plan, clock)
    places = steps.places.values
    in_place = read_in_place(plan, suffix)
    steps.start()
    if index == 0 and not in_place:
        _pixels(f, network, plan.pictures[0], suffix, f.at("%scratch", places[0]))
        steps.count(0)
    for number in range(phase.first, phase.last):
        values = [
            "%images" if in_place and value == 0 else f.at("%scratch", places[value])
            for value in (*plan.takes[number], number + 1)
        ]
        alone = units(plan.groups[number], plan.pictures[number + 1])
        bounds = ("%first", "%last") if phase.units > 1 else (0, alone)
        steps.call(number, values, *bounds)
        steps.count(1 + number)
    if final:
        _result(f, plan.pictures[-1], f.at("%scratch", places[-1]))
    return f.text()


def _pixels(f: Function, network: Network, picture: Picture, suffix: str, target: str) -> None:
    """The image at `%images` in the order in which the first group reads it."""
    type_ = PIXEL_TYPES[suffix]
    row = f"<{f.lanes} x {type_}>"
    with runs_of_pixels(f, network.input) as (channel, first, pixels):
        whole = pixels // f.lanes * f.lanes if not picture.channels_last else 0
        with f.loop(0, whole, f.lanes) as i:
            p = f.add(i, first)
            values = f.op(f"load {row}, ptr {f.at('%images', p, type_)}, align 1")
            values = normalised(f, network.input, suffix, values, channel)
            if first == "0":
                f.store(values, target, p)
            else:
                f.store_some(f.lanes, values, target, p)
        with f.loop(whole, pixels) as i:
            p = f.add(i, first)
            value = f.op(f"load {type_}, ptr {f.at('%images', p, type_)}, align 1")
            values = f.op(f"insertelement {row} poison, {type_} {value}, i32 0")
            values = normalised(f, network.input, suffix, values, channel)
            value = f.op(f"extractelement {f.vector} {values}, i32 0")
            f.do(f"store float {value}, ptr {f.at(target, place_of(f, picture, p))}")


def _result(f: Function, picture: Picture, source: str) -> None:
    """The activations in the order channel, y, x."""
    values = picture.channels * picture.height * picture.width
    if not picture.channels_last or values == picture.channels:
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr {source}, i64 {4 * values}, i1 0)")
        return
    with f.loop(0, values) as p:
        value = f.op(f"load float, ptr {f.at(source, place_of(f, picture, p))}")
        f.do(f"store float {value}, ptr {f.at('%out', p)}")
