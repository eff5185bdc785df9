"""What takes the time: kernels and API calls in nvprof's columns, what makes up 90 % marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tilewright.profiling import meaning
from tilewright.profiling.result import DEVICE_KINDS, Profile
from tilewright.profiling.saved import profile_of
from tilewright.profiling.start import RUN, with_run
from tilewright.profiling.tally import Row
from tilewright.results.profile import ProfileRecord
from tilewright.views import units
from tilewright.views.names import short
from tilewright.views.profile import calls_from_start, most
from tilewright.views.report import counters
from tilewright.views.report.blocks import (
    Block,
    Cell,
    Code,
    Folded,
    Heading,
    Number,
    Paragraph,
    Section,
    Table,
)
from tilewright.views.report.material import Material, profile_name

READING = (
    "The columns are nvprof's. A kernel is a function that the device computes, in thousands of "
    "threads; an API call is the host asking for something: to launch a kernel, to copy, to wait. "
    "Rows marked ● together take more than 90 % of their table's time: work on these."
)
MARK = "●"


def section(material: Material) -> Section:
    """The first profile of each network and device is open, for there may be dozens."""
    blocks: list[Block] = []
    for title, records in material.by_subject(ProfileRecord):
        blocks.append(Heading(title))
        blocks += profile(records[0])
        blocks += [Folded(_most(record), profile(record)) for record in records[1:]]
    return Section("calls", "Kernels and calls", READING, (*blocks, material.words_for("calls")))


def profile(record: ProfileRecord) -> list[Paragraph | Table | Code]:
    found = profile_of(record)
    notes = [record.stopped, *record.notices]
    blocks: list[Paragraph | Table | Code] = [
        Paragraph(f"{note}.", lead="How it was measured") for note in notes if note
    ]
    blocks.append(table(record, found, "kernels"))
    if found.named("api"):
        blocks.append(table(record, found, "calls"))
    return [*blocks, *counters.blocks(found, profile_name(record))]


def _most(record: ProfileRecord) -> str:
    """A profile in a line."""
    kernels = [row for row in record.rows if row.kind in DEVICE_KINDS]
    total = sum(row.seconds for row in kernels)
    if not total:
        return f"{profile_name(record)}: nothing was recorded on the device"
    top = max(kernels, key=lambda row: row.seconds)
    return f"{profile_name(record)}: {units.share(top.seconds / total)} is {short(top.name)}"


def table(
    record: ProfileRecord,
    found: Profile,
    which: Literal["kernels", "calls", "all calls"],
    all_of: bool = True,
) -> Table:
    """`all calls` are those from the start of the program on. `all_of`: not only those that
    together take more than 90 %.
    """
    kinds = DEVICE_KINDS if which == "kernels" else ("api",)
    rows = calls_from_start(found) if which == "all calls" else found.named(*kinds)
    total = sum(row.seconds for row in rows) or 1.0
    marked = {row.name for row in most(rows)}
    rows = [row for row in rows if all_of or row.name in marked]
    titles = {
        "calls": "API calls", "all calls": "API calls from the start of the program",
        "kernels": "GPU activities" if found.device.is_gpu else "Computation",
    }  # fmt: skip
    return Table(
        f"{titles[which]} of {profile_name(record)}, times from {record.source}",
        ("name", "90 %", ">time, %", ">time", ">calls", ">average", ">min", ">max", "what it is"),
        [_row(found, row, total, row.name in marked) for row in rows],
    )


def start(record: ProfileRecord) -> Table:
    """The whole program: what it did before the run, then the run."""
    wall = record.wall_seconds
    parts = with_run([(each.name, each.seconds) for each in record.start], wall)
    total = sum(seconds for _, seconds in parts) or 1.0
    return Table(
        f"From the start of the program, {profile_name(record)}",
        ("phase", ">time", ">share", "what is in it"),
        [
            (
                name, Number(units.seconds(seconds), seconds),
                Number(units.share(seconds / total), seconds),
                "the run, recorded" if name == RUN else meaning.of_phase(name),
            )
            for name, seconds in parts
        ],
    )  # fmt: skip


def _row(found: Profile, row: Row, total: float, marked: bool) -> Sequence[Cell]:
    if row.kind == "api":
        words = meaning.of_call(row.name)
    else:
        words = meaning.of_kernel(found, row) if row.kind == "kernel" else meaning.of_move(row)
    return (
        short(row.name),
        MARK if marked else "",
        Number(units.share(row.seconds / total), row.seconds),
        Number(units.seconds(row.seconds), row.seconds),
        Number(units.count(row.calls), row.calls),
        *(Number(units.seconds(each), each) for each in (row.average, row.minimum, row.maximum)),
        words,
    )
