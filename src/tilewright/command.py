"""The command that is being run, in words: records say how they came about."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

_GIVEN: ContextVar[tuple[str, ...] | None] = ContextVar("command", default=None)


@contextmanager
def commanded(words: Sequence[str]) -> Iterator[None]:
    """What happens inside of this is done by the command line, which was given these words."""
    before = _GIVEN.set(("tilewright", *words))
    try:
        yield
    finally:
        _GIVEN.reset(before)


def command() -> tuple[str, ...]:
    """As it was typed; of a program the file's name, whose arguments are its own affair."""
    name = Path(sys.argv[0]).name if sys.argv else ""
    return _GIVEN.get() or ("python", *([name] if name else []))
