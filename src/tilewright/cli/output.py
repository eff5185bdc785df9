"""What a verb gives: files first, then tables in the format asked for, or JSON in their place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.files import atomic_write

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tilewright.views.table import Format

TO_STDOUT = "-"


def write(*files: tuple[str | Path | None, str]) -> None:
    """Those that were asked for, and are files.

    Before anything is printed: whoever reads what is printed may leave in the middle.
    """
    for path, text in files:
        if path is not None and str(path) != TO_STDOUT:
            with atomic_write(Path(path)) as file:
                file.write(text.encode())


def show(
    json: str | None, text: str, report: Iterable[RenderableType], shape: Format = "text"
) -> None:
    """A report, or its JSON text if that is to go to stdout."""
    from tilewright.views import console

    if json == TO_STDOUT:
        console.write(text)
    else:
        tables(report, shape)


def tables(report: Iterable[RenderableType], shape: Format = "text") -> None:
    """A report to standard output."""
    from tilewright.views import console
    from tilewright.views.formats import document

    if shape != "text":
        console.write(document(report, shape))
        return
    screen = console.output()
    for part in report:
        screen.print(part)
