"""Times of rungs and libraries that stand in a leaderboard, and when they are taken again.

They are of one machine with one driver, one Tilewright and one task: if any of these is another,
or the teacher asks, they are timed anew; until then the old ones are shown, with their date.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tilewright import __version__
from tilewright.classroom.course import Task
from tilewright.classroom.tables import Tables, told, utc_now
from tilewright.results.grade import Judged

ASKED, TIMED = "marks asked for", "marks timed"  # events


class Where(msgspec.Struct, frozen=True):
    """What was timed on."""

    machine: str
    device: str
    driver: str


class Timed(msgspec.Struct, frozen=True):
    """A task's marks by their names. `asked` is the teacher's last wish that they fulfil."""

    settings: str
    where: Where
    asked: int
    taken: datetime.datetime
    marks: dict[str, Judged]


class Marks(Tables):
    """The part of the store that keeps them."""

    def marks(self, task: Task) -> Timed | None:
        """As the task is now; None until they are timed."""
        rows = self.database.rows("SELECT document FROM timed WHERE task = ?", (task.name,))
        found = msgspec.json.decode(rows[0][0], type=Timed) if rows else None
        return found if found is not None and found.settings == settings(task) else None

    def marks_due(self, task: Task, where: Where) -> bool:
        """Whether there are none of this machine, or newer ones were asked for."""
        found = self.marks(task) if task.marks else None
        fresh = found and (found.where, found.asked) == (where, self.marks_asked(task.name))
        return bool(task.marks) and not fresh

    def marks_asked(self, task: str) -> int:
        """The last time that a teacher asked for them; 0 if nobody did."""
        query = "SELECT max(id) FROM events WHERE kind = ? AND task = ?"
        rows = self.database.rows(query, (ASKED, task))
        return int(rows[0][0] or 0) if rows else 0

    def ask_marks(self, task: str, by: str) -> None:
        """Time them again, when nobody waits."""
        with self.database.writing() as database:
            told(database, ASKED, by, task=task)

    def keep_marks(self, task: Task, where: Where, asked: int, marks: Mapping[str, Judged]) -> None:
        made = Timed(settings(task), where, asked, utc_now(), dict(marks))
        with self.database.writing() as database:
            values = (task.name, msgspec.json.encode(made).decode())
            database.execute("INSERT OR REPLACE INTO timed VALUES (?, ?)", values)
            told(database, TIMED, where.device, task=task.name)


def settings(task: Task) -> str:
    """All of a task that the times of its marks depend on, and who times them."""
    facts = (
        __version__, task.network, _changed(task.network), task.data, task.device, task.batch,
        task.images, task.repeats, *task.marks,
    )  # fmt: skip
    return " ".join(map(str, facts))


def _changed(network: str) -> int:
    """When its file was last written, in ns; 0 of one that has none."""
    try:
        return Path(network).stat().st_mtime_ns
    except OSError:
        return 0
