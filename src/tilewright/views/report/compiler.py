"""What the compiler made of each kernel: registers, memory, occupancy, where the loops went."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.results.page import KernelRecord, KernelsRecord
from tilewright.views import units
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
    number,
)
from tilewright.views.report.material import Material

READING = (
    "Before anything runs: how a kernel is launched, what a thread and a block take, how many of "
    "them a multiprocessor can hold for that (occupancy), and which limit would bind if nothing "
    "else did. The loops of a convolution become blocks and threads, or stay sequential."
)


def section(material: Material) -> Section:
    blocks: list[Block] = []
    steps = {row.rung for ladder in material.ladders for row in ladder.rows}  # have it with them
    for _, records in material.by_subject(KernelsRecord):
        blocks.append(Heading(f"{records[0].network}, compiled for {records[0].device_name}"))
        made = [(each, rung(each, coded=each.rung not in steps)) for each in records]
        blocks += made[0][1]
        blocks += [Folded(record.rung, parts) for record, parts in made[1:]]
    words = material.words_for("compiler")
    return Section("compiler", "Compiler facts", READING, (*blocks, words))


def table(record: KernelsRecord) -> Table:
    """A row for each kernel of a rung and layer."""
    return Table(
        f"{record.rung} on {record.network}, batches of {units.count(record.batch)}; "
        f"{record.target}",
        (
            "kernel", "layer", "grid", "block", ">registers", ">spilled", ">shared", ">constant",
            ">occupancy", "limited by", "limit at best", ">at best", "loops",
        ),
        [_row(kernel) for kernel in record.kernels],
    )  # fmt: skip


def rung(record: KernelsRecord, coded: bool) -> list[Paragraph | Table | Code]:
    """`coded`: with its source."""
    blocks: list[Paragraph | Table | Code] = [table(record)]
    blocks += [Paragraph(f"{layer}: {why}") for layer, why in record.problems.items()]
    return [*blocks, source(record)] if coded else blocks


def source(record: KernelsRecord) -> Code:
    """Each kernel once: as it is for the first layer that it is used in."""
    first: dict[str, KernelRecord] = {}
    for kernel in record.kernels:
        first.setdefault(kernel.name, kernel)
    text = "\n".join(f"/* {k.name}, for {k.layer} */\n{k.source}" for k in first.values())
    return Code(f"The code of {record.rung}", text)


def _row(kernel: KernelRecord) -> Sequence[Cell]:
    return (
        kernel.name,
        kernel.layer,
        "x".join(map(str, kernel.grid)),
        "x".join(map(str, kernel.block)),
        number(str(kernel.registers), kernel.registers),
        number(units.size(kernel.spilled_bytes or 0), kernel.spilled_bytes),
        Number(units.size(kernel.shared_bytes), kernel.shared_bytes),
        Number(units.size(kernel.constant_bytes), kernel.constant_bytes),
        number(units.share(kernel.occupancy or 0.0), kernel.occupancy),
        kernel.occupancy_limit or "-",
        kernel.limit,
        Number(units.seconds(kernel.best_seconds), kernel.best_seconds),
        loops(kernel),
    )


def loops(kernel: KernelRecord) -> str:
    """Where they went, those of one place together: `block: filter 4; sequential: channel 16`."""
    places: dict[str, list[str]] = {}
    for loop in kernel.loops:
        places.setdefault(loop.place, []).append(f"{loop.name} {units.count(loop.extent)}")
    return "; ".join(f"{place}: {', '.join(names)}" for place, names in places.items())
