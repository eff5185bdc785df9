"""The devices of a machine as tables: what they have, what they are, what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.console import RenderableType

from tilewright.views import units
from tilewright.views.table import table

if TYPE_CHECKING:
    from tilewright.runtime.inventory import Found

SIMULATES = "simulator: checks kernels, a thousand times slower, used only when named"


def to_json(devices: Sequence[Found]) -> list[dict[str, object]]:
    return [{**asdict(device), "usable": device.problem is None} for device in devices]


def report(devices: Sequence[Found]) -> Iterator[RenderableType]:
    here = [device for device in devices if device.problem is None]
    rows = table(
        "Devices here", "\n--device", "\nmodel", ">\nprocessors", ">\nmemory",
        ">threads\na block", ">shared\nbytes", ">constant\nbytes",
    )  # fmt: skip
    for device in here:
        limits = device.limits
        sizes = (limits.threads, limits.shared_bytes, limits.constant_bytes) if limits else ()
        rows.add_row(
            device.name, device.model, units.count(device.processors),
            units.size(device.memory_bytes), *(map(units.count, sizes) if sizes else "---"),
        )  # fmt: skip
    yield rows
    yield ""
    words = table("What they are", "--device", "what it is")
    for device in here:
        words.add_row(device.name, "; ".join(_words(device)))
    yield words
    absent = [device for device in devices if device.problem is not None]
    if absent:
        reasons = table("Not usable here", "--device", "why, and how to get it")
        for device in absent:
            reasons.add_row(device.name, f"{device.model}: {device.problem}".removeprefix(": "))
        yield ""
        yield reasons
    yield (
        "\nprocessors: cores, compute units or multiprocessors. Limits are those that kernels keep "
        "to: no more than every GPU has (1,024 threads, 48 KiB shared, 64 KiB constant), even "
        "where a device has more."
    )


def _words(device: Found) -> Iterator[str]:
    yield device.details
    if device.managed is not None:
        yield "--memory managed works" if device.managed else "no --memory managed"
    if device.simulator:
        yield SIMULATES
