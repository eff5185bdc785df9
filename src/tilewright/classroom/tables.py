"""The tables of a class, and what every part of the store has in common.

`number` orders submissions, and `turn` orders judgings: clocks that jump change nothing there.
Times are kept in UTC, to be shown.
"""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.database import Database, Value, plain

APPLICATION, FORM = 0x54575243, 1  # "TWRC"
TABLES = (
    """CREATE TABLE people (
        login TEXT PRIMARY KEY, name TEXT NOT NULL, pseudonym TEXT NOT NULL UNIQUE,
        teacher INTEGER NOT NULL, invited INTEGER NOT NULL DEFAULT 0, code TEXT)""",
    "CREATE TABLE tokens (secret TEXT PRIMARY KEY, login TEXT NOT NULL, label TEXT NOT NULL)",
    "CREATE TABLE sessions (secret TEXT PRIMARY KEY, login TEXT NOT NULL, until TEXT NOT NULL)",
    """CREATE TABLE submissions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        login TEXT NOT NULL, task TEXT NOT NULL, device TEXT NOT NULL, file TEXT NOT NULL,
        sha256 TEXT NOT NULL, size INTEGER NOT NULL, ranked INTEGER NOT NULL,
        handed_in TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'waiting',
        attempts INTEGER NOT NULL DEFAULT 0, turn INTEGER NOT NULL DEFAULT 0,
        worker TEXT, words TEXT NOT NULL DEFAULT '', judged TEXT, disqualified TEXT)""",
    "CREATE INDEX submissions_of_people ON submissions(login, task)",
    "CREATE INDEX submissions_of_tasks ON submissions(task)",
    "CREATE INDEX submissions_open ON submissions(state) WHERE state != 'done'",
    """CREATE TABLE files (
        number INTEGER NOT NULL REFERENCES submissions(number), name TEXT NOT NULL,
        content BLOB NOT NULL, PRIMARY KEY (number, name))""",
    """CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT, moment TEXT NOT NULL, number INTEGER,
        login TEXT, task TEXT, kind TEXT NOT NULL, words TEXT NOT NULL)""",
    """CREATE TABLE workers (
        name TEXT PRIMARY KEY, device TEXT NOT NULL, words TEXT NOT NULL, beat TEXT NOT NULL)""",
)
# What a class of an earlier Tilewright lacks.
ADDED = (
    "CREATE TABLE IF NOT EXISTS tasks (name TEXT PRIMARY KEY, document TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS timed (task TEXT PRIMARY KEY, document TEXT NOT NULL)",
    "CREATE INDEX IF NOT EXISTS steps ON events(number) WHERE kind = 'progress'",
)
EVENT = "id, moment, number, login, task, kind, words"


@dataclass(frozen=True)
class Event:
    """Something that happened, for pages that are open: of one submission, or of none."""

    id: int
    moment: datetime.datetime
    number: int | None
    login: str | None
    task: str | None
    kind: str
    words: str


class Tables:
    """The file, and the log of what happens in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = Database(
            path, APPLICATION, FORM, TABLES, "a class", "update Tilewright, and start it again"
        )
        with self.database.writing() as database:  # it is ours, and can be written
            for statement in ADDED:
                database.execute(statement)
        self.held = self.database.held()

    def close(self) -> None:
        self.held.close()

    def events(self, after: int, most: int = 1000) -> list[Event]:
        """What happened since the event with that number, oldest first."""
        query = f"SELECT {EVENT} FROM events WHERE id > ? ORDER BY id LIMIT ?"
        return [_event(row) for row in self.database.rows(query, (after, most))]

    def latest(self, kind: str, most: int) -> list[Event]:
        """The last of a kind, newest first."""
        query = f"SELECT {EVENT} FROM events WHERE kind = ? ORDER BY id DESC LIMIT ?"
        return [_event(row) for row in self.database.rows(query, (kind, most))]

    def last_event(self, kinds: Collection[str] = ()) -> int:
        """The number of the latest, of some kinds or any; 0 if there is none."""
        marks = ", ".join("?" * len(kinds))
        among = f"WHERE kind IN ({marks}) " if kinds else ""
        query = f"SELECT id FROM events {among}ORDER BY id DESC LIMIT 1"
        rows = self.database.rows(query, tuple(kinds))
        return int(rows[0][0]) if rows else 0


def told(
    database: sqlite3.Connection, kind: str, words: str = "", number: int | None = None,
    task: str | None = None,
) -> None:  # fmt: skip
    """Write down what happened: of a submission with whose it was, of a task, or of neither."""
    database.execute(
        "INSERT INTO events (moment, number, login, task, kind, words) SELECT ?, ?, "
        "(SELECT login FROM submissions WHERE number = ?), "
        "coalesce(?, (SELECT task FROM submissions WHERE number = ?)), ?, ?",
        (kept(utc_now()), number, number, task, number, kind, plain(words)),
    )


def _event(row: tuple[Any, ...]) -> Event:
    return Event(row[0], moment(row[1]), *row[2:])


def changed(database: sqlite3.Connection, statement: str, values: tuple[Value, ...]) -> bool:
    """Whether a statement found what it was to change."""
    return bool(database.execute(statement, values).rowcount)


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def kept(moment: datetime.datetime) -> str:
    """A moment as a text that sorts by time."""
    return moment.astimezone(datetime.UTC).isoformat(timespec="milliseconds")


def moment(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text)
