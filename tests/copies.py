"""Processes of a test's own that work at once, or are killed at work: copies of the test's process.

To start Python takes half a second of the processor, for what they import; a copy has it already.
"""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

FORK = get_context("fork")
LONGEST_SECONDS = 60


class Copy:
    """`work` is given the end of a pipe, where it says that it is `ready` and what it has done."""

    killed = False

    def __init__(self, work: Callable[..., None], *given: Any) -> None:
        self.pipe, theirs = FORK.Pipe()
        self.process = FORK.Process(target=work, args=(theirs, *given))
        self.process.start()
        theirs.close()
        assert self._heard() == "ready"

    def go(self) -> None:
        self.pipe.send("go")

    def kill(self) -> None:
        self.killed = True
        self.process.kill()

    def said(self) -> list[Any]:
        """All that it said whole, until it ended: well, if it was not killed."""
        found = []
        try:
            while True:
                found.append(self._heard())
        except (EOFError, OSError):  # the second in the middle of something
            self.process.join()
            assert self.killed or self.process.exitcode == 0
            return found

    def _heard(self) -> Any:
        if not self.pipe.poll(LONGEST_SECONDS):
            self.kill()
            raise AssertionError(f"it said nothing for {LONGEST_SECONDS} s")
        return self.pipe.recv()


def ready(pipe: Connection) -> None:
    """For the work: to say so, and to wait for the start."""
    pipe.send("ready")
    pipe.recv()
