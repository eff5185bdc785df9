"""What the entries of both schedules share: arguments, pixels into values, the clock."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tilewright.fuse.cpu.code import Function, Value, float_text
from tilewright.fuse.cpu.parameters import layout, weight_offsets
from tilewright.fuse.cpu.pictures import Picture
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.fuse.cpu.winograd import WinogradGroup
from tilewright.model.layers import Pixels

PIXEL_TYPES = {"u8": "i8", "f32": "float"}
ARGUMENTS = (
    "ptr noalias %images", "ptr noalias %out", "ptr noalias %weights", "ptr noalias %scratch",
    "ptr noalias %shared", "ptr %ticks", "i64 %first", "i64 %last",
)  # fmt: skip


def pictures_of(plan: Schedule, index: int) -> tuple[Picture, ...]:
    """How what a group takes lies, and last what it makes."""
    return tuple(plan.pictures[value] for value in (*plan.takes[index], index + 1))


def symbols(plan: Schedule) -> tuple[str, ...]:
    """The name of each group's function: groups that compute the same have the first one's."""
    names: dict[Hashable, str] = {}
    found = []
    for index, group in enumerate(plan.groups):
        layers = tuple((s.layer, s.input_shapes, s.output_shape) for s in group.stages)
        same = (layers, replace(group, stages=()), pictures_of(plan, index))
        names.setdefault(same, "_".join(stage.name for stage in group.stages))
        found.append(names[same])
    return tuple(found)


def normalisation(pixels: Pixels) -> str:
    """What `normalised` reads where channels are scaled each in its way, else nothing."""
    if not pixels.specials:
        return ""
    named = (("scales", pixels.scales), ("shifts", pixels.shifts))
    return "".join(
        f"@{name} = private constant [{len(values)} x float] "
        f"[{', '.join(f'float {float_text(value)}' for value in values)}]\n"
        for name, values in named
    )


@contextmanager
def runs_of_pixels(f: Function, pixels: Pixels) -> Iterator[tuple[Value, Value, int]]:
    """The pixels that are scaled in the same way: the channel, the first one, and how many."""
    if not pixels.specials:
        yield "0", "0", math.prod(pixels.shape)
        return
    plane = math.prod(pixels.shape[1:])
    with f.loop(0, pixels.shape[0]) as channel:
        yield channel, f.mul(channel, plane), plane


def normalised(f: Function, pixels: Pixels, suffix: str, row: Value, channel: Value) -> Value:
    """A vector of pixels as the network takes them."""
    if suffix == "f32":
        return row
    number = f.op(f"uitofp <{f.lanes} x i8> {row} to {f.vector}")
    if pixels.specials:
        return f.fma(number, f.spread("@scales", channel), f.spread("@shifts", channel))
    return f.fma(number, f.constant(pixels.scales[0]), f.constant(pixels.shifts[0]))


class Steps:
    """Calls of a schedule's groups in an entry, and the time between them."""

    def __init__(self, f: Function, plan: Schedule, clock: str) -> None:
        self.f, self.plan, self.clock = f, plan, clock
        self.places, self.offsets = layout(plan), weight_offsets(plan)
        self.symbols = symbols(plan)
        self.since = ""

    def start(self) -> None:
        self.since = self.f.op(f"call i64 @{self.clock}()")

    def count(self, part: int) -> None:
        """Add the time since the last reading to a part's; others may be adding theirs."""
        f = self.f
        now = f.op(f"call i64 @{self.clock}()")
        taken = f.op(f"sub i64 {now}, {self.since}")
        f.op(f"atomicrmw add ptr {f.at('%ticks', part, 'i64')}, i64 {taken} monotonic")
        self.since = now

    def call(
        self, index: int, values: Sequence[Value], first: Value | int, last: Value | int,
        images: Value = "",
    ) -> None:  # fmt: skip
        """A group with the places of what it takes and, last, of what it makes, for so many images
        where it takes several."""
        source, *others, target = values
        more = "".join(f", ptr {other}" for other in others)
        if isinstance(self.plan.groups[index], WinogradGroup):
            more += f", ptr {self.f.at('%scratch', self.places.work)}"
        if images:
            more += f", i64 {images}"
        weights = self.f.at("%weights", self.offsets[index])
        self.f.do(
            f"call void @{self.symbols[index]}(ptr {source}, ptr {target}, "
            f"ptr {weights}, i64 {first}, i64 {last}{more})"
        )
