"""Tasks as they were when somebody last handed in for them, or the class was last served.

A task whose file is gone is no longer offered, and all that was handed in for it stays: it is
listed, fetched, exported and worth what it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from tilewright.classroom.course import Course, Task
from tilewright.classroom.tables import Tables


class KeptTasks(Tables):
    """The part of the store that knows them."""

    def keep_tasks(self, tasks: Iterable[Task]) -> None:
        with self.database.writing() as database:
            for task in tasks:
                keep_task(database, task)

    def with_gone(self, course: Course) -> Course:
        """The class with the tasks that it no longer offers and something was handed in for."""
        rows = self.database.rows(
            "SELECT name, document FROM tasks WHERE EXISTS "
            "(SELECT 1 FROM submissions WHERE task = tasks.name) ORDER BY name"
        )
        gone = {name: _gone(document) for name, document in rows if name not in course.tasks}
        return replace(course, gone=gone)


def keep_task(database: sqlite3.Connection, task: Task) -> None:
    document = msgspec.json.encode(task, enc_hook=str).decode()
    database.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?)", (task.name, document))


def _gone(document: str) -> Task:
    task = msgspec.json.decode(document, type=Task, dec_hook=lambda kind, value: kind(value))
    start = task.start if task.start is not None and Path(task.start).is_file() else None
    return replace(task, start=start, offered=False)
