"""The entries for few images: one at a time, alone or by several threads together.

A network is a sequence of phases, each a function

    void phase0_u8(images, out, weights, scratch, shared, ticks, first, last)

that computes the units `first` to `last` of its groups. Whoever calls it must see to it that the
phase before is complete; the units of one phase may be computed by different threads on the same
scratch memory. Units are numbered through all images: with three of them, those of the second image
are 3 to 5. `network_u8` is all phases of the images `first` to `last`, one after the other.

Where weights are read once for several images (`Schedule.gathered`), `network_u8` ends before
the first such group, and leaves what is needed further on in the images' slots before `shared`,
the memory of the thread that leads. The units of such a group are those of several images
(`Phase.of_several`); other phases behind it are for a range of images, group by group, or for units
of images again.
Where there is nothing before the first product (`Schedule.in_rows`), `network_u8` is all phases
again, of images whose slots are before the thread's own memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.entry import (
    ARGUMENTS,
    PIXEL_TYPES,
    Steps,
    normalised,
    runs_of_pixels,
)
from tilewright.fuse.cpu.grouped import Convolved, reads_once
from tilewright.fuse.cpu.groups import takes_several, units
from tilewright.fuse.cpu.joins import place_of
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.schedule import Schedule, reads_pixels
from tilewright.model.network import Network

# What is worth sharing out, in FLOP: about a microsecond of one core.
SHARED_FLOP = 100_000
# Of a number that stands for several images the bits that say how many.
COUNT_BITS = 20


@dataclass(frozen=True)
class Phase:
    """Groups `first` to `last` (without it), in so many units, taken `step` at a time; of a single
    image, or of `all_images` at once, which may be `shared` out, too. It takes so many FLOP an
    image."""

    first: int
    last: int
    units: int
    step: int
    all_images: bool = False
    shared: bool = False
    flop: int = field(default=0, compare=False)

    def of(self, number: int) -> tuple[int, int]:
        """The first unit of an image, and the first that is not."""
        return number * self.units, (number + 1) * self.units

    def of_several(self, first: int, count: int) -> tuple[int, int]:
        """The same of so many images from one on."""
        return self.of((first << COUNT_BITS) + count - 1)


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
        all_images = reads_once(group) and index >= plan.gathered
        # Of small layers that are gathered each image is a unit.
        own = index < plan.gathered or isinstance(group, Convolved)
        cut = own and parts > 1 and work >= 2 * SHARED_FLOP
        if cut or all_images:
            step = math.ceil(parts / max(1, math.floor(work / SHARED_FLOP)))
            shared = all_images and isinstance(group, Convolved)
            found.append(Phase(index, index + 1, parts, step, all_images, shared, work))
        elif found[-1].units == 1 and not found[-1].all_images:
            found[-1] = replace(found[-1], last=index + 1, flop=found[-1].flop + work)
        else:
            found.append(Phase(index, index + 1, 1, 1, flop=work))
    if found[-1].units > 1 or found[-1].all_images:
        found.append(Phase(len(plan.groups), len(plan.groups), 1, 1))
    return tuple(found)


def before_gathered(plan: Schedule) -> int:
    """How many phases are for each image, before the first product of several."""
    if plan.in_rows:
        return 0
    found = phases(plan)
    return next((i for i, phase in enumerate(found) if phase.all_images), len(found))


def read_in_place(plan: Schedule, suffix: str) -> bool:
    """Whether the image is read where it is: values as they lie, one by one."""
    kept = plan.gathered < len(plan.groups) and 0 in plan.kept
    return suffix == "f32" and reads_pixels(plan) and not kept


def entries_of_few(
    network: Network, plan: Schedule, attributes: str, suffix: str, clock: str
) -> str:
    """A function for each phase, and the one that goes through those of each image."""
    found = phases(plan)
    parts = []
    for index, phase in enumerate(found):
        entry = _Entry(network, plan, phase, f"phase{index}_{suffix}", attributes, suffix, clock)
        parts.append(entry.text(begins=index == 0, ends=index == len(found) - 1))
    f = Function(f"void @network_{suffix}", ARGUMENTS, plan.target, attributes)

    def call(index: int, where: str, first: Value, last: Value) -> None:
        f.do(f"call void @phase{index}_{suffix}({where}, ptr %ticks, i64 {first}, i64 {last})")

    if plan.in_rows:
        images = f.at("%images", f.mul("%first", plan.pictures[0].values), PIXEL_TYPES[suffix])
        out = f.at("%out", f.mul("%first", plan.pictures[-1].values))
        where = f"ptr {images}, ptr {out}, ptr %weights, ptr %scratch, ptr %scratch"
        count = f.op("sub i64 %last, %first")
        for index, phase in enumerate(found):
            end = f.mul(count, phase.units)
            call(index, where, f.add(end, -phase.units) if phase.all_images else "0", end)
        return "\n".join([*parts, f.text()])
    with f.loop("%first", "%last") as image:
        for index, phase in enumerate(found[: before_gathered(plan)]):
            begin = f.mul(image, phase.units)
            where = "ptr %images, ptr %out, ptr %weights, ptr %scratch, ptr %shared"
            call(index, where, begin, f.add(begin, phase.units))
    return "\n".join([*parts, f.text()])


class _Entry:
    """The function of a phase."""

    def __init__(
        self, network: Network, plan: Schedule, phase: Phase, name: str, attributes: str,
        suffix: str, clock: str,
    ) -> None:  # fmt: skip
        self.network, self.plan, self.phase, self.suffix = network, plan, phase, suffix
        self.f = Function(f"void @{name}", ARGUMENTS, plan.target, attributes)
        self.steps = Steps(self.f, plan, clock)

    def text(self, begins: bool, ends: bool) -> str:
        f, phase = self.f, self.phase
        groups = range(phase.first, phase.last)
        begins = begins and not read_in_place(self.plan, self.suffix)
        if phase.all_images:
            number, bounds = self._numbered()
            self.steps.start()
            begin = f.op(f"lshr i64 {number}, {COUNT_BITS}")
            count = f.add(f.op(f"and i64 {number}, {2**COUNT_BITS - 1}"), 1)
            self._all_images(phase.first, bounds, begin, count)
        elif phase.units > 1:
            image, bounds = self._numbered()
            self.steps.start()
            self._group(phase.first, image, bounds)
        elif phase.first >= self.plan.gathered:
            self.steps.start()
            if begins:
                with f.loop("%first", "%last") as image:
                    self._pixels(image)
                self.steps.count(0)
            for index in groups:
                self._group_of_all(index)
            if ends:
                with f.loop("%first", "%last") as image:
                    self._result(image)
        else:
            with f.loop("%first", "%last") as image:
                self.steps.start()
                if begins:
                    self._pixels(image)
                    self.steps.count(0)
                for index in groups:
                    self._group(index, image)
                if ends:
                    self._result(image)
        return f.text()

    def _numbered(self) -> tuple[Value, tuple[Value, Value]]:
        """Whose units are asked for, and which of them."""
        f = self.f
        number = f.op(f"sdiv i64 %first, {self.phase.units}")
        before = f.mul(number, -self.phase.units)
        return number, (f.add("%first", before), f.add("%last", before))

    def _group(self, index: int, image: Value, bounds: tuple[Value, Value] | None = None) -> None:
        """A group, or units of it, for an image."""
        self._call(index, image, bounds)
        self.steps.count(1 + index)

    def _all_images(
        self, index: int, bounds: tuple[Value, Value], begin: Value, count: Value
    ) -> None:
        """Units of a group for so many images from one on: each unit's weights once."""
        f = self.f
        if takes_several(self.plan.groups[index]):
            self._call(index, begin, bounds, count)
        else:
            with f.loop(*bounds) as unit, f.loop(begin, f.add(begin, count)) as image:
                self._call(index, image, (unit, f.add(unit, 1)))
        self.steps.count(1 + index)

    def _group_of_all(self, index: int) -> None:
        """A group for the images `%first` to `%last`."""
        f = self.f
        if takes_several(self.plan.groups[index]):
            self._call(index, "%first", several=f.op("sub i64 %last, %first"))
        else:
            with f.loop("%first", "%last") as image:
                self._call(index, image)
        self.steps.count(1 + index)

    def _call(
        self, index: int, image: Value, bounds: tuple[Value, Value] | None = None,
        several: Value = "",
    ) -> None:  # fmt: skip
        plan = self.plan
        values = [self._place(value, image) for value in (*plan.takes[index], index + 1)]
        whole = units(plan.groups[index], plan.pictures[index + 1])
        self.steps.call(index, values, *(bounds or ("0", str(whole))), several)

    def _pixels(self, image: Value) -> None:
        _pixels(self.f, self.network, self.plan.pictures[0], self.suffix, self._image(image),
                self._place(0, image))  # fmt: skip

    def _result(self, image: Value) -> None:
        out = self.f.at("%out", self.f.mul(image, math.prod(self.network.output_shape)))
        _result(self.f, self.plan.pictures[-1], self._place(-1, image), out)

    def _image(self, image: Value) -> Value:
        pixels = math.prod(self.network.input.shape)
        return self.f.at("%images", self.f.mul(image, pixels), PIXEL_TYPES[self.suffix])

    def _place(self, value: int, image: Value) -> Value:
        """Where a value of an image lies."""
        f, places = self.f, self.steps.places
        if value == 0 and read_in_place(self.plan, self.suffix):
            return self._image(image)
        place = places.values[value]
        if place >= 0:
            return f.at("%scratch", place)
        return f.at(f.at("%shared", place), f.mul(image, -places.slot))


def _pixels(
    f: Function, network: Network, picture: Picture, suffix: str, source: Value, target: Value
) -> None:
    """The image in the order in which the first group reads it."""
    type_ = PIXEL_TYPES[suffix]
    row = f"<{f.lanes} x {type_}>"
    with runs_of_pixels(f, network.input) as (channel, first, pixels):
        whole = pixels // f.lanes * f.lanes if not picture.channels_last else 0
        with f.loop(0, whole, f.lanes) as i:
            p = f.add(i, first)
            values = f.op(f"load {row}, ptr {f.at(source, p, type_)}, align 1")
            values = normalised(f, network.input, suffix, values, channel)
            if first == "0":
                f.store(values, target, p)
            else:
                f.store_some(f.lanes, values, target, p)
        with f.loop(whole, pixels) as i:
            p = f.add(i, first)
            value = f.op(f"load {type_}, ptr {f.at(source, p, type_)}, align 1")
            values = f.op(f"insertelement {row} poison, {type_} {value}, i32 0")
            values = normalised(f, network.input, suffix, values, channel)
            value = f.op(f"extractelement {f.vector} {values}, i32 0")
            f.do(f"store float {value}, ptr {f.at(target, place_of(f, picture, p))}")


def _result(f: Function, picture: Picture, source: Value, out: Value) -> None:
    """The activations in the order channel, y, x."""
    values = picture.channels * picture.height * picture.width
    if not picture.channels_last or values == picture.channels:
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {out}, ptr {source}, i64 {4 * values}, i1 0)")
        return
    with f.loop(0, values) as p:
        value = f.op(f"load float, ptr {f.at(source, place_of(f, picture, p))}")
        f.do(f"store float {value}, ptr {f.at(out, p)}")
