"""Reports in every format: tables and the sentences between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import cast

from rich.console import RenderableType

from tilewright.views.table import Format, Table

# What a report consists of, for a format to print: tables, and paragraphs in one line.
Parts = list[Table | str]


def document(report: Iterable[RenderableType], shape: Format) -> str:
    """A report as a text of its own; `text` is the console's."""
    render = import_module(f"tilewright.views.formats.{shape}").document
    return cast(Callable[[Parts], str], render)(parts(report))


def parts(report: Iterable[RenderableType]) -> Parts:
    """Tables as they are; sentences that were broken to fit a line are whole again. What is drawn
    for a terminal is left out: its numbers are in tables.
    """
    found: Parts = []
    for part in report:
        if isinstance(part, Table):
            found.append(part)
        elif isinstance(part, str) and (words := " ".join(part.split())):
            found.append(words)
    return found
