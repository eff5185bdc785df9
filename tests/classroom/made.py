"""Classes, people and verdicts for tests: small, and drawn from nothing."""

from __future__ import annotations

import datetime
from pathlib import Path

from tilewright.classroom.course import Task
from tilewright.classroom.marks import Where
from tilewright.classroom.store import Store
from tilewright.results.grade import Judged

NOW = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)
KERNEL = {"mine.cl": b"/* a kernel */"}
HERE = Where("a machine", "a device", "driver 1")
TASK = Task(name="first", title="The first")

CLASS = """
title = "Convolutions"
names = "pseudonyms"
teachers = ["tina"]
"""
ROSTER = "login,name\nanna,Anna A.\nben,Ben B.\n"


def class_folder(folder: Path, tasks: dict[str, str] | None = None, more: str = "") -> Path:
    (folder / "tasks").mkdir(parents=True)
    (folder / "class.toml").write_text(CLASS + more)
    (folder / "roster.csv").write_text(ROSTER)
    for name, text in (tasks or {"first": 'title = "The first"'}).items():
        (folder / "tasks" / f"{name}.toml").write_text(text)
    return folder


def store_with(path: Path, *logins: str) -> Store:
    store = Store(path / "state" / "class.sqlite")
    for login in logins:
        store.enrol(login, login.title())
    return store


def right(seconds: float = 0.001, baseline: float = 0.002) -> Judged:
    rounds = 3 * (seconds,)
    return Judged(
        outcome="right", operations={"conv1": rounds}, baseline={"conv1": 3 * (baseline,)}
    )
