"""What a simulator or a sanitizer finds in a kernel file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilewright.runtime.dialect import Part, placed

MOST = 8  # findings that are shown


@dataclass(frozen=True)
class Finding:
    """One thing, and the lines of the file that take part in it, with their text."""

    text: str
    lines: tuple[tuple[int, str], ...]


def lines_of(
    text: str, parts: tuple[Part, ...], numbers: Iterable[int]
) -> tuple[tuple[int, str], ...]:
    """Lines of a kernel file by their numbers, each once; those of files it includes name them."""
    source = text.split("\n")
    found = []
    for number in dict.fromkeys(numbers):
        if number <= len(source):
            file, line = placed(parts, "", number)
            found.append((line, f"in {file}: " * bool(file) + source[number - 1].strip()))
    return tuple(found)


@dataclass(frozen=True)
class Sanitized:
    """What `tool` found, and what it looks for; `problem` is why nothing could be watched."""

    tool: str
    looks_for: str
    findings: tuple[Finding, ...] = ()
    problem: str = ""
