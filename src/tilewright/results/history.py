"""Results over time: one SQLite file that any number of processes write to.

A record is kept in one transaction, and its number is told only when the disk has it
(`synchronous=FULL`): what was said to be kept is there after a crash. Writers take turns through
SQLite's write-ahead log. The file says whose it is (`application_id`) and which form it has
(`user_version`): another program's database, and one of a newer Tilewright, are left as they are.
"""

from __future__ import annotations

import datetime
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.results import document
from tilewright.results.catalogue import RECORDS
from tilewright.results.record import Record

APPLICATION, FORM = 0x54575248, 1  # "TWRH"
# How long a writer waits for others, which take milliseconds each.
WAIT_SECONDS = 60.0
PAUSE_SECONDS = 0.01
TABLES = (
    """CREATE TABLE records (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        date TEXT NOT NULL, verb TEXT NOT NULL, schema TEXT NOT NULL,
        network TEXT NOT NULL, device TEXT NOT NULL, device_name TEXT NOT NULL,
        machine TEXT NOT NULL, headline TEXT NOT NULL, document TEXT NOT NULL)""",
    """CREATE TABLE rungs (
        record INTEGER NOT NULL REFERENCES records(id) ON DELETE CASCADE,
        rung TEXT NOT NULL)""",
    "CREATE INDEX rungs_of_records ON rungs(record)",
)
LISTED = "id, date, verb, network, device, device_name, machine, headline"


@dataclass(frozen=True)
class Entry:
    """A record as the list shows it. `date` is in UTC."""

    id: int
    date: str
    verb: str
    network: str
    device: str
    device_name: str
    machine: str
    headline: str


@dataclass(frozen=True)
class Filter:
    """Which records; None is any. A kind of device stands for all of that kind, and a rung's name
    for all of its precisions. `last` are the latest so many of what is left.
    """

    verb: str | None = None
    network: str | None = None
    device: str | None = None
    since: datetime.datetime | None = None
    rung: str | None = None
    last: int | None = None


class History:
    """The records in one file, which need not be there yet."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Record) -> int:
        """Keep a record; its number. It is on the disk when this returns."""
        text = document.line(record)
        environment = record.environment
        values = (
            utc(datetime.datetime.fromisoformat(environment.date)), record.verb(),
            record.schema_id(), record.network, record.device, record.device_name,
            environment.machine, record.headline, text,
        )  # fmt: skip
        with self._writing() as database:
            marks = ", ".join("?" * len(values))
            number = database.execute(
                "INSERT INTO records (date, verb, schema, network, device, device_name, machine, "
                f"headline, document) VALUES ({marks})",
                tuple(map(_text, values)),
            ).lastrowid
            rows = [(number, _text(rung)) for rung in record.rungs]
            database.executemany("INSERT INTO rungs VALUES (?, ?)", rows)
        assert number is not None
        return number

    def entries(self, wanted: Filter = Filter()) -> list[Entry]:  # noqa: B008 - it is frozen
        """Those that fit, oldest first."""
        if not self.path.exists():
            return []
        tests, values = _conditions(wanted)
        query = f"SELECT {LISTED} FROM records WHERE {' AND '.join(tests)} ORDER BY id DESC LIMIT ?"
        last = -1 if wanted.last is None else wanted.last
        return [Entry(*row) for row in reversed(self._rows(query, (*values, last)))]

    def read(self, number: int) -> Record:
        """One record as it was kept."""
        query = "SELECT verb, schema, document FROM records WHERE id = ?"
        rows = self._rows(query, (number,))
        if not rows:
            raise TilewrightError(f"{self.path} has no record {number}")
        verb, schema, content = rows[0]
        kind = RECORDS.get(verb)
        if kind is None or kind.schema_id() != schema:
            raise TilewrightError(
                f"{self.path}: record {number} is a {schema}, which this Tilewright does not know"
            )
        try:
            return document.decode(content, kind)
        except ValueError as error:
            raise TilewrightError(f"{self.path}: record {number} is broken: {error}") from error

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget records: all of them, or none where one is not there."""
        with self._writing() as database:
            for number in numbers:
                database.execute("DELETE FROM rungs WHERE record = ?", (number,))
                if not database.execute("DELETE FROM records WHERE id = ?", (number,)).rowcount:
                    raise TilewrightError(f"{self.path} has no record {number}")

    def _rows(self, query: str, values: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        """What a query finds: nothing, where the first record is still on its way."""
        check_file(self.path)
        with self._explained("read"), closing(self._connect("rw")) as database:
            database.execute("BEGIN")  # all that is read is of one moment
            return database.execute(query, values).fetchall() if self._check(database) else []

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
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
                    for statement in TABLES:
                        database.execute(statement)
                    database.execute(f"PRAGMA application_id = {APPLICATION}")
                    database.execute(f"PRAGMA user_version = {FORM}")
                yield database
                database.execute("COMMIT")

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
        if application != APPLICATION:
            if form or database.execute("SELECT 1 FROM sqlite_master").fetchone():
                raise TilewrightError(f"{self.path} is not a history of Tilewright")
            return 0
        if form > FORM:
            raise TilewrightError(
                f"{self.path} was written by a newer Tilewright (form {form}; this one knows "
                f"{FORM}): update, or name another file with --history"
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


def utc(moment: datetime.datetime) -> str:
    """A moment as it is kept: texts that sort by time. Without a zone, UTC is meant."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)
    return aware.astimezone(datetime.UTC).isoformat(timespec="seconds")


def _conditions(wanted: Filter) -> tuple[list[str], list[str]]:
    tests, values = ["1"], []
    if wanted.verb is not None:
        tests.append("verb = ?")
        values.append(wanted.verb)
    if wanted.network is not None:
        tests.append("network = ?")
        values.append(wanted.network)
    if wanted.device is not None:
        tests.append("(device = ? OR substr(device, 1, length(?) + 1) = ? || ':')")
        values += 3 * [wanted.device]
    if wanted.since is not None:
        tests.append("date >= ?")
        values.append(utc(wanted.since))
    if wanted.rung is not None:
        matches = "rung = ? OR substr(rung, 1, length(?) + 1) = ? || ' '"
        tests.append(f"EXISTS (SELECT 1 FROM rungs WHERE record = records.id AND ({matches}))")
        values += 3 * [wanted.rung]
    return tests, list(map(_text, values))


def _text(value: str) -> str:
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
