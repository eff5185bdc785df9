"""What a verb gives: files first, then tables, or the JSON in their place."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.files import atomic_write

if TYPE_CHECKING:
    from rich.console import RenderableType

TO_STDOUT = "-"


def write(*files: tuple[str | Path | None, str]) -> None:
    """Those that were asked for, and are files.

    Before anything is printed: whoever reads what is printed may leave in the middle.
    """
    for path, text in files:
        if path is not None and str(path) != TO_STDOUT:
            with atomic_write(Path(path)) as file:
                file.write(text.encode())


def show(json: str | None, text: str, report: Iterable[RenderableType]) -> None:
    """A report, or its JSON text if that is to go to stdout."""
    from tilewright.views import console

    if json == TO_STDOUT:
        console.write(text)
        return
    screen = console.output()
    for part in report:
        screen.print(part)
