"""The regions of a profile: layers as the host reached them, their launches and copies."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from tilewright.profile.result import Profile, Region, regions
from tilewright.profile.tally import Row
from tilewright.trace import Size
from tilewright.views import units
from tilewright.views.console import table


def report(profile: Profile) -> Iterator[RenderableType]:
    found = regions(profile)
    made = table(
        "Regions", "\nlayer", ">\nreached", ">kernels\nlaunched", ">elapsed\ntotal", ">\nmax",
        ">\nmin", ">\navg", ">kernels\ntime", "grid\nand block",
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
        )
    yield made
    yield (
        "elapsed: from the host's reaching the layer to its going on; where it does not wait, the "
        "device is\nstill at work then"
    )
    copies = [region for region in found if region.copies_in or region.copies_out]
    if not copies:
        return
    yield ""
    made = table(
        "Copies of regions", "\nlayer", ">in\ncopies", ">\nbytes", ">\ntime", ">out\ncopies",
        ">\nbytes", ">\ntime",
    )  # fmt: skip
    for region in copies:
        made.add_row(
            layer_names(region.layers), *_copied(region.copies_in), *_copied(region.copies_out)
        )
    yield made


def _copied(rows: list[Row]) -> tuple[str, str, str]:
    if not rows:
        return "-", "-", "-"
    return (
        units.count(sum(row.calls for row in rows)),
        units.size(sum(row.bytes for row in rows)),
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
