"""What a process of a report may be asked to do, in tests."""

from __future__ import annotations

import os

from tilewright import environment
from tilewright.errors import TilewrightError


def well(words, *, progress):
    print("a library prints this")
    progress("counting", 1, 2)
    return [words, os.getpid()]


def wrong(words, *, progress):
    raise TilewrightError(f"there is no {words}")


def gone(words, *, progress):
    os._exit(7)


def taken(*, progress):
    """The process, how long it was at work, and how long it waited for that."""
    return [os.getpid(), environment.usage().elapsed_seconds, environment._waited[0]]
