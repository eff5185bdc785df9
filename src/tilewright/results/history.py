"""Results over time: one SQLite file that any number of processes write to (`database`)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewright.database import Database, plain
from tilewright.errors import TilewrightError
from tilewright.results import document
from tilewright.results.catalogue import RECORDS
from tilewright.results.record import Record

APPLICATION, FORM = 0x54575248, 1  # "TWRH"
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
        self.database = Database(
            path, APPLICATION, FORM, TABLES, "a history",
            "update, or name another file with --history",
        )  # fmt: skip

    def add(self, record: Record) -> int:
        """Keep a record; its number. It is on the disk when this returns."""
        text = document.line(record)
        environment = record.environment
        values = (
            utc(datetime.datetime.fromisoformat(environment.date)), record.verb(),
            record.schema_id(), record.network, record.device, record.device_name,
            environment.machine, record.headline, text,
        )  # fmt: skip
        with self.database.writing() as database:
            marks = ", ".join("?" * len(values))
            number = database.execute(
                "INSERT INTO records (date, verb, schema, network, device, device_name, machine, "
                f"headline, document) VALUES ({marks})",
                tuple(map(plain, values)),
            ).lastrowid
            rows = [(number, plain(rung)) for rung in record.rungs]
            database.executemany("INSERT INTO rungs VALUES (?, ?)", rows)
        assert number is not None
        return number

    def entries(self, wanted: Filter = Filter()) -> list[Entry]:
        """Those that fit, oldest first."""
        if not self.path.exists():
            return []
        tests, values = _conditions(wanted)
        query = f"SELECT {LISTED} FROM records WHERE {' AND '.join(tests)} ORDER BY id DESC LIMIT ?"
        last = -1 if wanted.last is None else wanted.last
        return [Entry(*row) for row in reversed(self.database.rows(query, (*values, last)))]

    def read(self, number: int) -> Record:
        """One record as it was kept."""
        query = "SELECT verb, schema, document FROM records WHERE id = ?"
        rows = self.database.rows(query, (number,))
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
        with self.database.writing() as database:
            for number in numbers:
                database.execute("DELETE FROM rungs WHERE record = ?", (number,))
                if not database.execute("DELETE FROM records WHERE id = ?", (number,)).rowcount:
                    raise TilewrightError(f"{self.path} has no record {number}")


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
    return tests, list(map(plain, values))
