"""A function in a process of its own, which tells how far it is.

What a process took of the machine, its start and its largest size are then of one run alone, and
what records a device, which stays in a process, disturbs no other run.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import IO

from tilewright.contest import Progress
from tilewright.errors import TilewrightError
from tilewright.results.record import Record

START = "from tilewright.reporting.process import main; main()"


def elsewhere(
    function: Callable[..., list[Record]], progress: Progress, **given: object
) -> list[Record]:
    """What a function of a module gives. What its `progress` is told there is told here; a
    TilewrightError there is one here.
    """
    # Ctrl-C is for the one who asked, and ends this by ending it.
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", START], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
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
    function, given = pickle.load(sys.stdin.buffer)
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
