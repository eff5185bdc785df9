"""Names of kernels, short: without template arguments, and not as a linker writes them."""

from __future__ import annotations

import re

LONGEST = 44
MANGLED = re.compile(r"_ZN?[KVr]*(?=\d)")
LENGTH = re.compile(r"\d+")


def short(name: str) -> str:
    """A C++ name without its template arguments, cut where it is still too long."""
    name, before = _source_name(name), ""
    while before != name:
        before, name = name, re.sub(r"<[^<>]*>", "", name)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _source_name(name: str) -> str:
    """The last of a mangled name's own words, as in `_ZN2at6native9some_nameILi4EEvv`: before it
    are namespaces, after it template arguments. Each word stands behind its length.
    """
    start = MANGLED.match(name)
    if start is None:
        return name
    at, found = start.end(), name
    while length := LENGTH.match(name, at):
        end = length.end() + int(length.group())
        at, found = end, name[length.end() : end]
    return found
