"""The guided analysis of a profile: how far kernels use the GPU, and what their warps wait for."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.profiling.counters import Counted
from tilewright.profiling.result import Profile
from tilewright.profiling.stalls import worst
from tilewright.views import units
from tilewright.views.counters import LONGEST, reasons
from tilewright.views.names import short
from tilewright.views.report.blocks import Cell, Number, Paragraph, Table, number

READ = "as NVIDIA's ncu read the GPU's counters, of one batch"


def blocks(found: Profile, name: str) -> list[Paragraph | Table]:
    """Nothing where nobody asked for them."""
    if found.uncounted:
        return [Paragraph(f"not read: {found.uncounted}.", lead="Counters")]
    shown = found.counters[:LONGEST]
    made: list[Paragraph | Table] = [_uses(name, shown)] if shown else []
    return [*made, _stalls(name, shown)] if any(each.stalls for each in shown) else made


def sentence(found: Profile, kernel: str) -> str:
    """What the counters say of a kernel; nothing where it was not counted."""
    for each in found.counters:
        if each.kernel == kernel:
            held = worst(each.stalls)
            waits = "" if held is None else (
                f"; its warps wait most for {held.what.short}, {units.share(held.share)} of their "
                "time"
            )  # fmt: skip
            return f" The GPU's counters say of it: {each.says}{waits}."
    return ""


def _uses(name: str, shown: Sequence[Counted]) -> Table:
    rows: list[Sequence[Cell]] = []
    for each in shown:
        shares = (each.occupancy, each.warp_efficiency, each.compute, each.dram, each.l2,
                  each.shared)  # fmt: skip
        known = (number(units.share(share or 0.0), share) for share in shares)
        launches = Number(units.count(each.launches), each.launches)
        rows.append((short(each.kernel), launches, *known, each.says))
    return Table(
        f"Use of the GPU by {name}, {READ}",
        ("kernel", ">launches", ">achieved occupancy", ">warp efficiency", ">compute", ">DRAM",
         ">L2", ">shared memory", "what they say"),
        rows,
    )  # fmt: skip


def _stalls(name: str, shown: Sequence[Counted]) -> Table:
    return Table(
        f"What warps of {name} wait for, {READ}",
        ("kernel", ">share of their time", "reason", "what it is"),
        [
            (short(each.kernel), Number(units.share(stall.share), stall.share), reason,
             stall.what.words)
            for each in shown
            for stall, reason in reasons(each.stalls)
        ],
    )  # fmt: skip
