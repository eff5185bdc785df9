"""What was handed in, and what came of it. It is on the disk when `hand_in` returns its number."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import msgspec

from tilewright.classroom.course import Task
from tilewright.classroom.handed_in import NotTaken, digest, kernel_of
from tilewright.classroom.kept_tasks import keep_task
from tilewright.classroom.tables import Tables, changed, kept, moment, told
from tilewright.database import Value, plain
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged

State = Literal["waiting", "judging", "done"]
MOST_WAITING = 100  # of one person at a time
MOST_KEPT = 2000  # of one person for one task
COLUMNS = (
    "number, login, task, device, file, sha256, size, ranked, handed_in, state, attempts, turn, "
    "worker, words, judged, disqualified"
)


@dataclass(frozen=True)
class Submitted:
    """One submission as it stands. `words` are what its worker is doing; `attempts` how often it
    was begun; `turn` orders judgings. `disqualified` is the teacher's reason."""

    number: int
    login: str
    task: str
    device: str
    file: str
    sha256: str
    size: int
    ranked: bool
    handed_in: datetime.datetime
    state: State
    attempts: int
    turn: int
    worker: str | None
    words: str
    judged: Judged | None
    disqualified: str | None

    @cached_property
    def seconds(self) -> float | None:
        """The time of all convolutions, if it was timed."""
        total = None if self.judged is None else self.judged.total
        return None if total is None else total.median

    @property
    def counts(self) -> bool:
        """Whether it can have a place: ranked, right, timed, not taken out."""
        right = self.judged is not None and self.judged.outcome == "right"
        return self.ranked and right and self.seconds is not None and self.disqualified is None


class Submissions(Tables):
    """The part of the store that knows what was handed in."""

    def hand_in(
        self,
        login: str,
        task: Task,
        files: Mapping[str, bytes],
        ranked: bool,
        now: datetime.datetime,
    ) -> int:
        """Take files in, to be judged; their number. An error if they cannot be taken."""
        file = kernel_of(files)
        if problem := task.closed(now):
            raise NotTaken(problem)
        login = login.casefold()
        size = sum(map(len, files.values()))
        with self.database.writing() as database:
            query = "SELECT count(*) FROM submissions WHERE login = ? AND "
            (waiting,) = database.execute(f"{query} state = 'waiting'", (login,)).fetchone()
            (all_of,) = database.execute(f"{query} task = ?", (login, task.name)).fetchone()
            if waiting >= MOST_WAITING:
                raise NotTaken(f"{waiting} of yours are waiting: no more until some are judged")
            if all_of >= MOST_KEPT:
                raise NotTaken(f"you have handed in {all_of:,} for this task, which is the most")
            number = database.execute(
                "INSERT INTO submissions (login, task, device, file, sha256, size, ranked, "
                "handed_in) SELECT login, ?, ?, ?, ?, ?, ?, ? FROM people WHERE login = ?",
                (
                    task.name, str(task.device), file, digest(files), size, int(ranked), kept(now),
                    login,
                ),
            ).lastrowid  # fmt: skip
            if not number:
                raise NotTaken(f"there is no {login!r:.80} in the class")
            database.executemany(
                "INSERT INTO files VALUES (?, ?, ?)",
                [(number, name, content) for name, content in files.items()],
            )
            keep_task(database, task)
            told(database, "waiting", "", number)
        return number

    def submission(self, number: int) -> Submitted | None:
        found = self._found("number = ?", (number,))
        return found[0] if found else None

    def files(self, number: int) -> dict[str, bytes]:
        query = "SELECT name, content FROM files WHERE number = ? ORDER BY name"
        return dict(self.database.rows(query, (number,)))

    def of_person(self, login: str, task: str | None = None) -> list[Submitted]:
        """Oldest first."""
        if task is None:
            return self._found("login = ?", (login.casefold(),))
        return self._found("login = ? AND task = ?", (login.casefold(), task))

    def of_task(self, task: str) -> list[Submitted]:
        """Oldest first."""
        return self._found("task = ?", (task,))

    def disqualify(self, number: int, reason: str | None, by: str) -> None:
        """Take a submission out of the ranking, with the reason; None takes it back in."""
        words = f"{by}: {reason}" if reason else by
        kind = "disqualified" if reason else "counts again"
        statement = "UPDATE submissions SET disqualified = ? WHERE number = ?"
        with self.database.writing() as database:
            if not changed(database, statement, (plain(reason) if reason else None, number)):
                raise TilewrightError(f"there is no submission {number}")
            told(database, kind, words, number)

    def rerun(self, number: int, by: str) -> None:
        """Judge it anew: what came of it is gone, and so is the claim of whoever is at it."""
        with self.database.writing() as database:
            statement = (
                "UPDATE submissions SET state = 'waiting', attempts = 0, worker = NULL, "
                "words = '', judged = NULL WHERE number = ?"
            )
            if not changed(database, statement, (number,)):
                raise TilewrightError(f"there is no submission {number}")
            told(database, "waiting", f"{by} has it judged again", number)

    def _found(self, condition: str, values: tuple[Value, ...]) -> list[Submitted]:
        query = f"SELECT {COLUMNS} FROM submissions WHERE {condition} ORDER BY number"
        return [submitted(row) for row in self.database.rows(query, values)]


def submitted(row: tuple[Any, ...]) -> Submitted:
    """A row with `COLUMNS`."""
    found = dict(zip(COLUMNS.split(", "), row, strict=True))
    judged = found["judged"]
    return Submitted(
        **found
        | {
            "ranked": bool(found["ranked"]),
            "handed_in": moment(found["handed_in"]),
            "judged": None if judged is None else msgspec.json.decode(judged, type=Judged),
        }
    )
