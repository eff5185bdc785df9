"""Landlock: a process gives up all files but those it names, for itself and all it ever starts.

Part of Linux since 5.13, for everybody; no root. There is no function of the C library for it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # of every CPU
ASK_VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE, READ, LIST = 1, 1 << 1, 1 << 2, 1 << 3
REMOVE_FOLDER, REMOVE_FILE, MAKE_FOLDER, MAKE_FILE = 1 << 4, 1 << 5, 1 << 7, 1 << 8
MOVE, TRUNCATE, DEVICE_CONTROL = 1 << 13, 1 << 14, 1 << 15
# All rights there are up to a version of Landlock.
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
OF_FILES = EXECUTE | WRITE | READ | TRUNCATE | DEVICE_CONTROL
NET_FROM, TCP = 4, 3  # bind and connect
SCOPES_FROM, SCOPES = 6, 3  # abstract sockets of others, and signals to them


@dataclass(frozen=True)
class Rule:
    """What may be done with a file, or with all that is below a folder."""

    path: Path
    rights: int


def readable(*paths: str | Path) -> tuple[Rule, ...]:
    return tuple(Rule(Path(path), READ | LIST) for path in paths)


def executable(path: str | Path) -> Rule:
    return Rule(Path(path), READ | EXECUTE)


def writable(folder: str | Path) -> Rule:
    rights = READ | LIST | WRITE | REMOVE_FOLDER | REMOVE_FILE | MAKE_FOLDER | MAKE_FILE
    return Rule(Path(folder), rights | MOVE | TRUNCATE)


def overwritable(folder: str | Path) -> Rule:
    """Files that are there may be written anew; none can be made."""
    return Rule(Path(folder), READ | LIST | WRITE | TRUNCATE)


def device_file(path: str | Path) -> Rule:
    return Rule(Path(path), READ | LIST | WRITE | DEVICE_CONTROL)


def version() -> int:
    """Of Landlock here; 0 where there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, int(_system().syscall(CREATE_RULESET, None, 0, ASK_VERSION)))


def restrict(rules: Iterable[Rule]) -> None:
    """From here on this thread, and all it starts, has only these files. What is not there is not
    allowed either."""
    here = version()
    handled = RIGHTS[max(known for known in RIGHTS if known <= here)]
    attributes = struct.pack(
        "QQQ", handled, TCP if here >= NET_FROM else 0, SCOPES if here >= SCOPES_FROM else 0
    )
    size = 24 if here >= SCOPES_FROM else 16 if here >= NET_FROM else 8
    ruleset = _call(CREATE_RULESET, attributes, size, 0)
    try:
        for rule in rules:
            _add(ruleset, rule, handled)
        _call(RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _add(ruleset: int, rule: Rule, handled: int) -> None:
    try:
        place = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        folder = stat.S_ISDIR(os.fstat(place).st_mode)
        rights = rule.rights & handled & (handled if folder else OF_FILES)
        _call(ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _call(number: int, *arguments: int | bytes) -> int:
    result = int(_system().syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"Landlock: {os.strerror(error)}")
    return result


def _system() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
