"""What a process of a report may be asked to do, in tests."""

from __future__ import annotations

import os

from tilewright.errors import TilewrightError


def well(words, *, progress):
    print("a library prints this")
    progress("counting", 1, 2)
    return [words, os.getpid()]


def wrong(words, *, progress):
    raise TilewrightError(f"there is no {words}")


def gone(words, *, progress):
    os._exit(7)
