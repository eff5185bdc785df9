"""What the entries of both schedules share: arguments, pixels into values, the clock."""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.fuse.cpu.code import Function, Value
from tilewright.fuse.cpu.parameters import layout, weight_offsets
from tilewright.fuse.cpu.schedule import Schedule
from tilewright.model.layers import Pixels

PIXEL_TYPES = {"u8": "i8", "f32": "float"}
ARGUMENTS = (
    "ptr noalias %images", "ptr noalias %out", "ptr noalias %weights", "ptr noalias %scratch",
    "ptr %ticks", "i64 %first", "i64 %last",
)  # fmt: skip


def symbols(plan: Schedule) -> tuple[str, ...]:
    """The name of each group's function: groups that compute the same have the first one's."""
    names: dict[Hashable, str] = {}
    found = []
    for index, group in enumerate(plan.groups):
        layers = tuple((s.layer, s.input_shape, s.output_shape) for s in group.stages)
        same = (layers, *plan.pictures[index : index + 2])
        names.setdefault(same, "_".join(stage.name for stage in group.stages))
        found.append(names[same])
    return tuple(found)


def normalised(f: Function, pixels: Pixels, suffix: str, row: Value) -> Value:
    """A vector of pixels as the network takes them."""
    if suffix == "f32":
        return row
    number = f.op(f"uitofp <{f.lanes} x i8> {row} to {f.vector}")
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
        self, index: int, source: Value, target: Value, first: Value | int, last: Value | int
    ) -> None:
        weights = self.f.at("%weights", self.offsets[index])
        self.f.do(
            f"call void @{self.symbols[index]}(ptr {source}, ptr {target}, "
            f"ptr {weights}, i64 {first}, i64 {last})"
        )
