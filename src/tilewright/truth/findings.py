"""What a simulator or a sanitizer finds in a kernel file."""

from __future__ import annotations

from dataclasses import dataclass

MOST = 8  # findings that are shown


@dataclass(frozen=True)
class Finding:
    """One thing, and the lines of the file that take part in it, with their text."""

    text: str
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Sanitized:
    """What `tool` found, and what it looks for; `problem` is why nothing could be watched."""

    tool: str
    looks_for: str
    findings: tuple[Finding, ...] = ()
    problem: str = ""
