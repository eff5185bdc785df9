"""A function in a process of its own, which tells how far it is.

What a process took of the machine, its start and its largest size are then of one run alone, and
what records a device, which stays in a process, disturbs no other run. Its libraries, a third of
what a run on a GPU takes, it may load while the one before it is at work (`started_ahead`); the
time in which it waits then is not counted as its own.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import IO

from tilewright import environment
from tilewright.contest import Progress
from tilewright.errors import TilewrightError
from tilewright.results.record import Record

START = "import tilewright.reporting.measure; from tilewright.reporting.process import main; main()"


def elsewhere(
    function: Callable[..., list[Record]], progress: Progress, **given: object
) -> list[Record]:
    """What a function of a module gives. What its `progress` is told there is told here; a
    TilewrightError there is one here.
    """
    spare = _spare.get()
    process = spare.pop() if spare else _start()
    if spare is not None:
        spare.append(_start())
    assert process.stdin is not None and process.stdout is not None
    with process:
        try:
            pickle.dump((function, given), process.stdin)
            process.stdin.close()
            return _answer(process.stdout, progress)
        except (EOFError, BrokenPipeError) as error:
            code = process.wait()
            raise TilewrightError(f"its process ended ({code}) without an answer") from error
        finally:
            process.kill()


@contextmanager
def started_ahead() -> Iterator[None]:
    """Inside, each process is started while the one before it is at work, and waits to be asked."""
    spare = [_start()]
    before = _spare.set(spare)
    try:
        yield
    finally:
        _spare.reset(before)
        for process in spare:
            process.kill()
            process.communicate()


_spare: ContextVar[list[subprocess.Popen[bytes]] | None] = ContextVar("spare", default=None)


def _start() -> subprocess.Popen[bytes]:
    # Ctrl-C is for the one who asked, and ends this by ending it.
    return subprocess.Popen(
        [sys.executable, "-P", "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip


def _answer(said: IO[bytes], progress: Progress) -> list[Record]:
    while True:
        kind, *words = pickle.load(said)  # of our own process
        if kind == "progress":
            progress(*words)
        elif kind == "error":
            raise TilewrightError(*words)
        else:
            (records,) = words
            assert isinstance(records, list)
            return records


def main() -> None:
    """The process: what to do from standard input, what comes of it to standard output."""
    since = time.monotonic()
    with open(0, "rb", closefd=False) as questions:
        if not questions.peek():
            os._exit(1)  # who might have asked is gone
        environment.waited(time.monotonic() - since)
        function, given = pickle.load(questions)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer

    def say(*words: object) -> None:
        pickle.dump(words, answers)
        answers.flush()

    try:
        made = function(**given, progress=lambda *now: say("progress", *now))
        say("made", made)
    except TilewrightError as error:
        say("error", str(error))
    except BrokenPipeError:
        os._exit(1)  # who asked was killed
