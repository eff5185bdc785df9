"""The regions of a profile: layers as the host reached them, their launches and copies."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.profiling import meaning
from tilewright.profiling.result import Profile, Region, in_and_out, regions
from tilewright.profiling.tally import TITLES, Row, by_name
from tilewright.trace import (
    CPU_FAULT,
    DEVICE_TO_HOST,
    GPU_FAULTS,
    HOST_TO_DEVICE,
    PAGES_TO_DEVICE,
    PAGES_TO_HOST,
    Size,
)
from tilewright.views import units
from tilewright.views.table import Column, table

NO_LAYER = "no layer"  # what is copied or moved for the batch as a whole
WARM_UP = "warm up"  # a run: its copies are those of the tables of regions
COPIES = {TITLES[HOST_TO_DEVICE]: "copyin", TITLES[DEVICE_TO_HOST]: "copyout"}


def report(profile: Profile) -> Iterator[RenderableType]:
    found = regions(profile)
    made = table(
        "Regions", "\nlayer", ">\nreached", ">kernels\nlaunched", ">elapsed\ntotal", ">\nmax",
        ">\nmin", ">\navg", ">kernels\ntime", "grid\nand block",
        *([Column("\ndata", spare=1)] if profile.device.is_gpu else ()),
    )  # fmt: skip
    for region in found:
        reached = region.reached
        elapsed = [reached.seconds, reached.maximum, reached.minimum, reached.average] \
            if reached else []  # fmt: skip
        made.add_row(
            layer_names(region.layers),
            units.count(reached.calls) if reached else "-",
            units.count(sum(row.calls for row in region.kernels)),
            *(map(units.seconds, elapsed) if elapsed else "----"),
            units.seconds(sum(row.seconds for row in region.kernels)) if region.kernels else "-",
            "\n".join(_shapes(region)),
            *([_data(profile, region)] if profile.device.is_gpu else ()),
        )
    yield made
    if profile.device.is_gpu:
        yield (
            "data: copyin and copyout, or copy for both, where a layer's data is copied for it; "
            "present, where it is on the device already; shared, where pages move by themselves"
        )
    yield (
        "elapsed: from the host's reaching the layer to its going on; where it does not wait, the "
        "device is still at work then"
    )
    if profile.of("copy"):
        yield ""
        of_none = [row for row in profile.of("copy") if not row.layers]
        yield _copies(found, of_none)
        if any(row.place for row in profile.of("copy")):
            yield "line: where Tilewright's source asks for the copy"
        if of_none:
            yield f"{NO_LAYER}: pixels before the first, results after the last"
    if profile.of("unified"):
        yield ""
        yield _pages(found, [row for row in profile.of("unified") if not row.layers])


def _data(profile: Profile, region: Region) -> str:
    """By the names of OpenACC's data clauses."""
    if region.copies_in or region.copies_out:
        if region.copies_in and region.copies_out:
            return "copy"
        return "copyin" if region.copies_in else "copyout"
    if not region.kernels:
        return "-"
    return "shared" if profile.memory == "managed" else "present"


def _copies(found: list[Region], of_none: list[Row]) -> RenderableType:
    """Each direction by the name that OpenACC's data clauses have for it."""
    made = table(
        "Copies of regions", "layer", "clause", Column("array", spare=2), Column("line", spare=3),
        ">copies", ">bytes", ">time", Column("avg", "number", spare=1),
        Column("min", "number", spare=1), Column("max", "number", spare=1),
    )  # fmt: skip
    named = [(layer_names(r.layers), r.copies_in, r.copies_out) for r in found]
    for name, *both in [*named, (NO_LAYER, *in_and_out(of_none))]:
        for clause, rows in zip(("copyin", "copyout"), both, strict=True):
            for (array, line), each in _by_array(rows).items():
                made.add_row(name, clause, array, line, *_copied(each), *_spread(each))
    return made


def start(profile: Profile) -> Iterator[RenderableType]:
    """What is made, loaded, sent and freed before and after the run, phase by phase."""
    made = table(
        "Creating, loading and freeing", "region", "clause", "of", ">times", ">bytes", ">time",
        Column("avg", "number", spare=1), Column("min", "number", spare=1),
        Column("max", "number", spare=1),
    )  # fmt: skip
    found: dict[tuple[str, str, str], list[Row]] = {}
    for row in profile.start_rows:
        clause = COPIES.get(row.name, "") if row.kind == "copy" else meaning.clause(row.name)
        if row.phase and row.phase != WARM_UP and clause:
            found.setdefault((row.phase, clause, row.array or row.name), []).append(row)
    for words, rows in found.items():
        made.add_row(*words, *_copied(rows), *_spread(rows))
    yield made
    yield (
        "clause: create and delete are memory taken and given back, copyin and copyout copies of "
        "an array; context and module are what a program needs before its first kernel"
    )


def _by_array(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.array or "-", row.place or "-"), []).append(row)
    return found


def _spread(rows: list[Row]) -> Iterator[str]:
    """Average, least and most of one."""
    yield units.seconds(sum(row.seconds for row in rows) / sum(row.calls for row in rows))
    yield units.seconds(min(row.minimum for row in rows))
    yield units.seconds(max(row.maximum for row in rows))


def _pages(found: list[Region], of_none: list[Row]) -> RenderableType:
    """Pages that moved, under the layer whose kernel or whose host's work wanted them."""
    made = table(
        "Pages of regions", "\nlayer", ">GPU fault\ngroups", ">kernels\nwaited", ">moves\nin",
        ">bytes\nin", ">time\nin", ">moves\nout", ">bytes\nout", ">time\nout", ">CPU\nfaults",
    )  # fmt: skip
    named = [(layer_names(r.layers), r.unified, sum(k.faulted for k in r.kernels)) for r in found]
    for name, rows, waited in [*named, (NO_LAYER, of_none, 0.0)]:
        if not rows:
            continue
        calls = {row.name: row.calls for row in by_name(rows)}
        made.add_row(
            name,
            units.count(calls[GPU_FAULTS]) if GPU_FAULTS in calls else "-",
            units.seconds(waited) if waited else "-",
            *_copied([row for row in rows if row.name == PAGES_TO_DEVICE]),
            *_copied([row for row in rows if row.name == PAGES_TO_HOST]),
            units.count(calls[CPU_FAULT]) if CPU_FAULT in calls else "-",
        )
    return made


def _copied(rows: list[Row]) -> tuple[str, str, str]:
    if not rows:
        return "-", "-", "-"
    return (
        units.count(sum(row.calls for row in rows)),
        units.size(size) if (size := sum(row.bytes for row in rows)) else "-",
        units.seconds(sum(row.seconds for row in rows)),
    )


def _shapes(region: Region) -> Iterator[str]:
    """Of each kernel the shapes of its launches, short."""
    for row in region.kernels:
        for grid, block in row.shapes[:2]:
            yield f"{_product(grid)} of {_product(block)}"
        others = len(row.shapes[2:])
        if others or row.more_shapes:
            yield f"and {others}{' or more' if row.more_shapes else ''} others"


def layer_names(layers: tuple[str, ...]) -> str:
    """All, or the first and the last of many."""
    if len(layers) > 4:
        return f"{layers[0]}..{layers[-1]}"
    return ", ".join(layers) or "-"


def _product(sizes: Size) -> str:
    """Without what is 1 at the end."""
    kept = [size for index, size in enumerate(sizes) if any(s > 1 for s in sizes[index:])] or [1]
    return "x".join(map(str, kept))
