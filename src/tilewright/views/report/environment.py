"""Where the figures come from: machines, libraries, settings, and the commands that repeat them."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime

from tilewright.results.record import Environment
from tilewright.views import units
from tilewright.views.report.blocks import Block, Code, Folded, Section, Table
from tilewright.views.report.material import Material

READING = (
    "Every figure on this page is from one of these machines and one of these commands; times from "
    "another machine, or of another day on a busy one, will differ."
)


def section(material: Material) -> Section:
    made_from = f"What this page is made from: {units.plural(len(material.records), 'record')}"
    blocks: list[Block] = [machines(material), Folded(made_from, [records(material)])]
    blocks.append(Code("To measure all of it again", "\n".join(commands(material))))
    return Section("environment", "Environment and commands", READING, blocks)


def machines(material: Material) -> Table:
    found: dict[tuple[object, ...], Environment] = {}
    for record in material.records:
        each = record.environment
        found.setdefault((each.machine, each.system, each.python, each.tilewright), each)
    return Table(
        "Machines",
        ("machine", ">memory", "GPUs", "system", "Python", "Tilewright", "libraries"),
        [
            (
                each.machine,
                units.size(each.memory_bytes),
                "; ".join(f"{g.name}, driver {g.driver}, {g.memory}" for g in each.gpus) or "none",
                each.system,
                each.python,
                each.tilewright,
                ", ".join(f"{name} {version}" for name, version in each.libraries.items()),
            )
            for each in found.values()
        ],
    )


def records(material: Material) -> Table:
    return Table(
        "What this page is made from",
        ("kind", "network", "device", "rungs", "settings", "date"),
        [
            (
                record.verb(),
                record.network,
                f"{record.device} ({record.device_name})",
                ", ".join(record.rungs),
                ", ".join(
                    f"{name} {value}"
                    for name, value in record.settings.items()
                    if value is not None and name != "rung"
                ),
                _minute(record.environment.date),
            )
            for record in material.records
        ],
    )


def _minute(date: str) -> str:
    """A time as people read it; whatever else a record has stays as it is."""
    try:
        return f"{datetime.fromisoformat(date).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return date


def commands(material: Material) -> list[str]:
    """Each once, in the order of the records: every record has the one that makes it alone."""
    return list(dict.fromkeys(shlex.join(each.environment.command) for each in material.records))
