"""All that a class does, in one SQLite file: people, submissions, the queue, workers, events.

Each method is one transaction. Any number of threads and processes may have a `Store` of the same
file; what a method returned for is on the disk.
"""

from __future__ import annotations

import datetime
import secrets
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tilewright.classroom.course import Course
from tilewright.classroom.kept_tasks import KeptTasks
from tilewright.classroom.marks import Marks
from tilewright.classroom.mishaps import Mishaps
from tilewright.classroom.people import People, Person
from tilewright.classroom.queue import Queue
from tilewright.classroom.submissions import Submitted
from tilewright.classroom.tables import APPLICATION, FORM, TABLES, Event, kept, moment, utc_now
from tilewright.database import Database
from tilewright.errors import TilewrightError
from tilewright.files import reason

__all__ = ["Event", "Person", "Store", "Submitted", "Working", "store_of"]


@dataclass(frozen=True)
class Working:
    """A worker as pages show it; `beat` is when it was last heard of."""

    name: str
    device: str
    words: str
    beat: datetime.datetime


class Store(People, Queue, KeptTasks, Marks, Mishaps):
    """The class's file."""

    def beat(self, worker: str, device: str, words: str) -> None:
        """A worker is there, and what it does."""
        with self.database.writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?)",
                (worker, device, words, kept(utc_now())),
            )

    def workers(self) -> list[Working]:
        rows = self.database.rows("SELECT name, device, words, beat FROM workers ORDER BY name")
        return [Working(name, device, words, moment(beat)) for name, device, words, beat in rows]

    def backup(self, path: Path) -> None:
        """A copy of one moment, while all goes on. It has its name when it is whole."""
        with self.database.reading() as database:
            database.execute("ROLLBACK")  # SQLite's own copying reads by itself
            _copy(database, path)

    def restore(self, path: Path) -> None:
        """Be again what a backup is, all of it or nothing."""
        backup = Database(path, APPLICATION, FORM, TABLES, "a class", "update Tilewright first")
        with backup.reading() as database, closing(sqlite3.connect(self.path)) as own:
            database.execute("ROLLBACK")
            database.backup(own)


def _copy(database: sqlite3.Connection, path: Path) -> None:
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        part.touch(mode=0o600)  # it has people's work in it
        with closing(sqlite3.connect(part)) as copy:
            database.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
        part.replace(path)
    except OSError as error:
        raise TilewrightError(f"cannot write {path}: {reason(error)}") from error
    except sqlite3.Error as error:
        raise TilewrightError(f"cannot write {path}: {error}") from error
    finally:
        part.unlink(missing_ok=True)


def store_of(course: Course) -> Store:
    """The store of a class, with the people that its files name."""
    store = Store(course.state / "class.sqlite")
    store.enrol_all(course.people, course.teachers)
    return store
