"""A source as a page shows it: line by line, with what was found at each."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass

MOST_LINES, MOST_CHARACTERS = 2000, 200_000  # of a source that a page shows
MOST_FOUND = 100  # messages
# As compilers and our own proof say it: a file, a line, perhaps a column, and words.
PLACE = re.compile(
    r"^[ \t]{0,40}([^\s:][^:\n]{0,100}):(\d{1,7})(?::\d{1,7})?: ([^\n]{1,500})", re.MULTILINE
)


@dataclass(frozen=True)
class Line:
    """`found` are messages that name it, each once."""

    text: str
    found: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """`cut`: there is more of it than a page shows."""

    name: str
    lines: tuple[Line, ...]
    cut: bool


def shown(name: str, content: bytes, reason: str) -> Source:
    """A file of a submission, whatever is in it, and what its verdict says of its lines."""
    text = content.decode(errors="replace").replace("\r\n", "\n").removesuffix("\n")
    lines = text[:MOST_CHARACTERS].split("\n", MOST_LINES)[:MOST_LINES]
    found: dict[int, dict[str, None]] = defaultdict(dict)
    for _, place in zip(range(MOST_FOUND), PLACE.finditer(reason), strict=False):
        if place[1] == name:
            found[int(place[2])][place[3]] = None
    return Source(
        name,
        tuple(Line(line, tuple(found.get(number, ()))) for number, line in enumerate(lines, 1)),
        len("\n".join(lines)) < len(text),
    )
