"""What nobody expected, in full, in a log of the class's folder: for whoever can mend it.

A mishap has a reference: the student reads it in one line, the teacher finds it in the log, which
never takes more than a few megabytes.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from logging.handlers import RotatingFileHandler
from pathlib import Path
from secrets import token_hex

from tilewright.classroom.tables import Tables, kept, told, utc_now
from tilewright.errors import TilewrightError
from tilewright.files import reason
from tilewright.terminal import say_once

MOST_BYTES, MOST_FILES = 2**20, 3  # of the log, and how many older ones stand beside it
LONGEST = 20_000  # characters of a traceback, the last ones
MISHAP, MOST_LISTED = "mishap", 20  # an event, and how many of them are kept
_ONE = threading.Lock()  # writes at a time


class Mishaps(Tables):
    """The part of the store that keeps them."""

    @property
    def log(self) -> Path:
        return self.path.with_name("errors.log")

    def mishap(self, about: str, trace: str) -> str:
        """Keep a traceback; the reference to find it by. Where the disk is full, it is lost."""
        reference, last = token_hex(4), trace.strip().rpartition("\n")[2]
        say_once(f"a mistake of Tilewright's: {last}; all of it is in {self.log}")
        try:
            with _ONE:
                self._write(f"{kept(utc_now())} reference {reference}: {about}\n{trace[-LONGEST:]}")
            with self.database.writing() as database:
                told(database, MISHAP, f"reference {reference}: {about}: {last}")
                database.execute(
                    "DELETE FROM events WHERE kind = ? AND id NOT IN "
                    "(SELECT id FROM events WHERE kind = ? ORDER BY id DESC LIMIT ?)",
                    (MISHAP, MISHAP, MOST_LISTED),
                )
        except OSError as error:
            say_once(f"cannot write {self.log}: {reason(error)}")
        except TilewrightError as error:
            say_once(str(error))
        return reference

    def _write(self, words: str) -> None:
        file = RotatingFileHandler(
            self.log, "a", MOST_BYTES, MOST_FILES, encoding="utf-8", errors="replace"
        )
        with closing(file):
            if file.shouldRollover(logging.makeLogRecord({"msg": words})):
                file.doRollover()
            assert file.stream is not None  # it was opened above
            file.stream.write(f"{words.rstrip()}\n\n")
