"""The one error a user is meant to see."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

LONGEST_NAME = 100  # of what is shown, and compared with other names


class TilewrightError(Exception):
    """Bad input or a missing device, package or file.

    The message is one line that names the file, layer or value at fault. It is raised where
    the fault is known and shown once, by `tilewright.cli.main`, with exit code 2.
    """


class SeveralLines(TilewrightError):
    """The exception: what is wrong takes several lines to show, and they are in `report`; the
    message says it in one."""

    @property
    def report(self) -> str:
        return str(self)


def unknown(what: str, name: str, known: Iterable[str]) -> TilewrightError:
    """An error for a name that does not exist, with the nearest name that does."""
    names, shown = (
        list(dict.fromkeys(known)),
        name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}...",
    )
    near = difflib.get_close_matches(shown, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return TilewrightError(f"unknown {what} {shown!r}; {hint}")
