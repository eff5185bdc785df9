"""What a visual profiler's guided analysis shows: how far a kernel uses the GPU, and what its warps
wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType

from tilewright.profiling.counters import BOUND, FEW_WARPS, Counted
from tilewright.profiling.result import Profile
from tilewright.profiling.stalls import Stall, worst
from tilewright.views import colours, units
from tilewright.views.names import short
from tilewright.views.table import Marked, Table, table

# Rows of a table that is not asked for completeness; the rest are one line.
LONGEST = 20
# Reasons to wait that are shown make up this share of a warp's time, and each at least that.
MOST, LEAST = 0.90, 0.03


def report(profile: Profile) -> Iterator[RenderableType]:
    if profile.uncounted:
        yield f"Counters: not read: {profile.uncounted}"
        return
    shown = profile.counters[:LONGEST]
    yield _uses(shown)
    yield (
        "of one batch, in percent of what is possible; ncu runs each kernel several times over, "
        "with caches emptied before"
    )
    if any(each.says.startswith("latency") for each in shown):
        yield (
            f"latency: nothing is used to {100 * BOUND:.0f} % of what it can do; warps wait, most "
            f"of all for what is named. Too few warps: less than {100 * FEW_WARPS:.0f} % of those "
            "that fit are there to work meanwhile"
        )
    if any(each.stalls for each in shown):
        yield ""
        yield _stalls(shown)
        yield "shares of the time in which a warp is there; * what holds the kernel up most"


def _uses(shown: Sequence[Counted]) -> Table:
    made = table(
        "Counters, read by ncu", "\nkernel", ">\nlaunches", ">achieved\noccupancy",
        ">warp\nefficiency", ">\ncompute", ">\nDRAM", ">\nL2", ">shared\nmemory",
        "\nwhat they say",
    )  # fmt: skip
    for each in shown:
        shares = (each.occupancy, each.warp_efficiency, each.compute, each.dram, each.l2,
                  each.shared)  # fmt: skip
        known = ("-" if share is None else units.share(share) for share in shares)
        made.add_row(short(each.kernel), units.count(each.launches), *known,
                     colours.limit(each.says))  # fmt: skip
    return made


def _stalls(shown: Sequence[Counted]) -> Table:
    made = table("What warps wait for", "kernel", "%share", "reason", "what it is")
    for number, each in enumerate(shown):
        if number:
            made.add_section()
        for stall, reason in reasons(each.stalls):
            share = units.share(stall.share)
            made.add_row(short(each.kernel), share, reason, stall.what.words)
    return made


def reasons(stalls: Sequence[Stall]) -> Iterator[tuple[Stall, str]]:
    """Each with its name, most first, until what is left is little; the worst is marked."""
    held, so_far = worst(stalls), 0.0
    for stall in stalls:
        if so_far > MOST or stall.share < LEAST:
            return
        name = stall.reason.replace("_", " ")
        yield stall, Marked(f"{name} *", colours.WAITING) if stall is held else name
        so_far += stall.share
