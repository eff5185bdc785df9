"""One SQLite file that any number of processes write to, and how it is kept.

A change is one transaction, and is told only when the disk has it (`synchronous=FULL`): what was
said to be kept is there after a crash. Writers take turns through SQLite's write-ahead log. The
file says whose it is (`application_id`) and which form it has (`user_version`): another program's
database, and one of a newer Tilewright, are left as they are.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason

# How long a writer waits for others, which take milliseconds each.
WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.01

Value = str | int | float | bytes | None


@dataclass(frozen=True)
class Database:
    """A file that need not be there yet. `what` it is, in words, and what to do `otherwise` where
    a newer Tilewright wrote it, stand in errors."""

    path: Path
    application: int
    form: int
    tables: Sequence[str]
    what: str
    otherwise: str

    def rows(self, query: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """What a query finds: nothing, where the first of all writers is still at it."""
        with self._reading() as (database, form):
            return database.execute(query, values).fetchall() if form else []

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """All that is read is of one moment."""
        with self._reading() as (database, form):
            if not form:
                raise TilewrightError(f"{self.path} is empty")
            yield database

    @contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, int]]:
        check_file(self.path)
        with self._explained("read"), closing(self._connect("rw")) as database:
            database.execute("BEGIN")
            yield database, self._check(database)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it, or none."""
        with self._explained("write"):
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.exists():
                check_file(self.path)
            with closing(self._connect("rwc")) as database:
                database.execute("BEGIN")
                self._check(database)  # before anything is changed
                database.execute("ROLLBACK")
                _use_log(database)
                database.execute("PRAGMA synchronous = FULL")
                database.execute("BEGIN IMMEDIATE")
                if self._check(database) == 0:
                    for statement in self.tables:
                        database.execute(statement)
                    database.execute(f"PRAGMA application_id = {self.application}")
                    database.execute(f"PRAGMA user_version = {self.form}")
                yield database
                database.execute("COMMIT")

    def held(self) -> sqlite3.Connection:
        """One that is only kept: while it is there, who leaves need not tidy up the log, which
        takes longer than to write a line."""
        with self._explained("read"):
            database = sqlite3.connect(self.path, check_same_thread=False)
            self._check(database)
            return database

    def _connect(self, mode: str) -> sqlite3.Connection:
        place = self.path.absolute()
        logged = place.with_name(f"{place.name}-wal").exists()
        if mode == "rw" and not logged and not os.access(place.parent, os.W_OK):
            mode = "ro&immutable=1"  # where nobody can write, SQLite need not lock
        return sqlite3.connect(
            f"{place.as_uri()}?mode={mode}", timeout=WAIT_SECONDS, isolation_level=None, uri=True
        )

    def _check(self, database: sqlite3.Connection) -> int:
        """The file's form, 0 if it is new; an error if it is not ours to read.

        Inside a transaction: another process may be making it.
        """
        application = database.execute("PRAGMA application_id").fetchone()[0]
        form = int(database.execute("PRAGMA user_version").fetchone()[0])
        if application != self.application:
            if form or database.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise TilewrightError(f"{self.path} is not {self.what} of Tilewright")
            return 0
        if form > self.form:
            raise TilewrightError(
                f"{self.path} was written by a newer Tilewright (form {form}; this one knows "
                f"{self.form}): {self.otherwise}"
            )
        return form

    @contextmanager
    def _explained(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise TilewrightError(f"cannot {doing} {self.path}: {error}") from error
        except OSError as error:
            raise TilewrightError(f"cannot {doing} {self.path}: {reason(error)}") from error


def plain(value: str) -> str:
    """Without halves of characters, which names of files may have and no database takes."""
    return value.encode(errors="replace").decode()


def _use_log(database: sqlite3.Connection) -> None:
    """The write-ahead log, for good. SQLite does not wait for others here, as it does elsewhere."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            if database.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                database.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(PAUSE_SECONDS)
