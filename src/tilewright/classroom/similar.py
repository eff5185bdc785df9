"""Sources that are nearly the same, whatever was renamed, moved, commented or laid out anew.

A source becomes a row of tokens in which all names are one name and all numbers one number, as far
as they are not words of the language. Of every few tokens in a row a fingerprint is chosen by its
hash (winnowing), so that a passage which two sources share shows wherever it stands. What a task's
start file and its own rung have is everybody's, and does not count.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from tilewright.classroom.course import Task
from tilewright.classroom.ranking import standings
from tilewright.classroom.store import Store

ROW = 12  # tokens in a fingerprint: shorter passages are the language's
WINDOW = 8  # of so many fingerprints one is chosen
LEAST_SHARE = 0.6
MOST_LINES = 2000  # beside each other
TOKEN = re.compile(
    r"(?P<skip>\s+|//[^\n]*|/\*.*?(?:\*/|\Z)|\\\n)|(?P<text>\"(?:\\.|[^\"\\\n])*\"?)"
    r"|(?P<name>[^\W\d]\w*)|(?P<number>\.?\d[\w.]*)|(?P<sign>[-+*/%&|^<>=!]=|<<|>>|&&|\|\||\+\+|--|.)",
    re.DOTALL,
)
# Of C and of its two dialects for devices.
WORDS = frozenset({
    "auto", "bool", "break", "case", "char", "const", "constant", "continue", "default", "define",
    "do", "double", "else", "endif", "enum", "extern", "float", "float2", "float4", "for", "global",
    "goto", "half", "if", "ifdef", "ifndef", "include", "int", "kernel", "local", "long", "pragma",
    "register", "restrict", "return", "short", "signed", "sizeof", "static", "struct", "switch",
    "typedef", "union", "unroll", "unsigned", "void", "volatile", "while",
})  # fmt: skip


@dataclass(frozen=True)
class Alike:
    """Two sources and how much of the smaller one is in the other, from 0 to 1."""

    first: int
    second: int
    share: float


def in_class(store: Store, task: Task) -> list[Alike]:
    """Of every person the fastest that counts, or the last, held against all others."""
    chosen = [each.best or next(reversed(each.handed_in), None) for each in standings(store, task)]
    numbers = {each.number: each.login for each in chosen if each is not None}
    sources = {number: source(store, number) for number in numbers}
    return alike(sources, numbers, _common(task))


def source(store: Store, number: int) -> str:
    """All files of a submission, one after the other."""
    return "\n".join(content.decode(errors="replace") for content in store.files(number).values())


def _common(task: Task) -> Iterator[str]:
    """What everybody has: the task's own start, and those of `kernel new`."""
    from tilewright.rungs.own.start import DIRECT, LIKE, start

    if task.start is not None:
        yield task.start.read_text(errors="replace")
    for language in DIRECT:
        yield start("common", "direct", language)
    for like in LIKE:
        yield start("common", like, "dialect")


def tokens(source: str) -> list[str]:
    """What a compiler would take for the same after renaming."""
    made = []
    for found in TOKEN.finditer(source):
        kind, text = found.lastgroup, found.group()
        if kind == "name":
            known = text in WORDS or text.startswith("TW_")
            made.append(text if known else "name")
        elif kind != "skip":
            made.append(text if kind == "sign" else str(kind))
    return made


def fingerprints(source: str) -> frozenset[int]:
    row = tokens(source)
    hashes = [
        zlib.crc32(" ".join(row[start : start + ROW]).encode())
        for start in range(max(1, len(row) - ROW + 1))
    ]
    return frozenset(
        min(hashes[start : start + WINDOW]) for start in range(max(1, len(hashes) - WINDOW + 1))
    )


def alike(
    sources: Mapping[int, str],
    owners: Mapping[int, str],
    common: Iterable[str] = (),
    least: float = LEAST_SHARE,
) -> list[Alike]:
    """Pairs of different owners that share so much, most alike first. `common` is everybody's."""
    everybodys = frozenset().union(*map(fingerprints, common))
    prints = {number: fingerprints(source) - everybodys for number, source in sources.items()}
    found = []
    for first, second in combinations(sorted(sources), 2):
        smaller = min(len(prints[first]), len(prints[second]))
        if owners[first] == owners[second] or not smaller:
            continue
        share = len(prints[first] & prints[second]) / smaller
        if share >= least:
            found.append(Alike(first, second, share))
    return sorted(found, key=lambda pair: (-pair.share, pair.first, pair.second))


def side_by_side(first: str, second: str) -> list[tuple[str, str, bool]]:
    """Lines beside each other, and whether they are alike but for names, numbers and blanks."""
    from difflib import SequenceMatcher

    left, right = first.splitlines()[:MOST_LINES], second.splitlines()[:MOST_LINES]
    one, other = ([" ".join(tokens(line)) for line in lines] for lines in (left, right))
    rows: list[tuple[str, str, bool]] = []
    for kind, a, b, c, d in SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        rows += _rows(left[a:b], right[c:d], kind == "equal")
    return rows


def _rows(left: Sequence[str], right: Sequence[str], same: bool) -> list[tuple[str, str, bool]]:
    most = max(len(left), len(right))
    both = ([*lines, *[""] * (most - len(lines))] for lines in (left, right))
    return [(a, b, same) for a, b in zip(*both, strict=True)]
