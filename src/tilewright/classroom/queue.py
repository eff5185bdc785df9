"""Who is judged next, by whom, and what becomes of it when a worker is lost.

The queue is fair to people, not to submissions: whoever was served longest ago comes first, and of
one person the oldest. So one student's fifty go in between the others, one a round. A worker has a
submission until it says what came of it, or is declared lost: then its word no longer counts, and
the submission is judged once more.
"""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from tilewright.classroom.submissions import COLUMNS, Submissions, Submitted, submitted
from tilewright.classroom.tables import changed, told
from tilewright.database import plain
from tilewright.results.grade import Judged

MOST_ATTEMPTS = 2
LONGEST_WORDS = 200  # characters of progress


@dataclass(frozen=True)
class Waiting:
    """As much of a submission as its turn depends on."""

    number: int
    login: str


def order(
    waiting: Iterable[Waiting], running: Mapping[str, int], last: Mapping[str, int]
) -> list[int]:
    """Numbers in the order in which they are taken, if nobody hands in anything more.

    `running` says how many of a person's are being judged, `last` when (in turns) one was begun.
    """
    queues: dict[str, list[int]] = defaultdict(list)
    for each in sorted(waiting, key=lambda each: each.number):
        queues[each.login].append(each.number)
    placed = [
        ((place, running.get(login, 0), last.get(login, 0), numbers[0]), number)
        for login, numbers in queues.items()
        for place, number in enumerate(numbers)
    ]
    return [number for _, number in sorted(placed)]


class Queue(Submissions):
    """The part of the store that hands out work."""

    def waiting(self) -> list[Submitted]:
        """In the order in which they will be judged, where all devices are alike."""
        query = f"SELECT {COLUMNS} FROM submissions WHERE state = 'waiting'"
        with self.database.reading() as database:
            found = {each.number: each for each in map(submitted, database.execute(query))}
            return [found[number] for number in _order(database, None)]

    def judging(self) -> list[Submitted]:
        return self._found("state = 'judging'", ())

    def position(self, number: int) -> int | None:
        """How many are before it and itself; 0 while it is judged; None when it is done."""
        found = self.submission(number)
        if found is None or found.state == "done":
            return None
        if found.state == "judging":
            return 0
        with self.database.reading() as database:
            numbers = _order(database, {found.device})
        return 1 + numbers.index(number) if number in numbers else 0

    def take(self, worker: str, devices: Collection[str]) -> Submitted | None:
        """The next for a worker with such devices, which is its own from now on."""
        if not self.any_waiting(devices):  # without waiting for those who write
            return None
        with self.database.writing() as database:
            numbers = _order(database, devices)
            if not numbers:
                return None
            database.execute(
                "UPDATE submissions SET state = 'judging', worker = ?, attempts = attempts + 1, "
                "words = '', turn = 1 + (SELECT max(turn) FROM submissions) WHERE number = ?",
                (worker, numbers[0]),
            )
            told(database, "judging", worker, numbers[0])
            query = f"SELECT {COLUMNS} FROM submissions WHERE number = ?"
            return submitted(database.execute(query, (numbers[0],)).fetchone())

    def any_waiting(self, devices: Collection[str]) -> bool:
        """Whether there is something to take for a worker with such devices."""
        rows = self.database.rows("SELECT DISTINCT device FROM submissions WHERE state = 'waiting'")
        return any(device in devices for (device,) in rows)

    def judged_on(self, devices: Mapping[str, str]) -> None:
        """The device of each task, by name: what waits, waits for that one."""
        statement = "UPDATE submissions SET device = ? WHERE task = ? AND state = 'waiting'"
        with self.database.writing() as database:
            database.executemany(statement, [(device, task) for task, device in devices.items()])

    def progress(self, number: int, worker: str, words: str) -> bool:
        """Say what a worker is doing; False if the submission is no longer its own."""
        with self.database.writing() as database:
            words = plain(words)[:LONGEST_WORDS]
            values = (words, number, worker)
            statement = "UPDATE submissions SET words = ? WHERE number = ? AND worker = ?"
            mine = changed(database, statement, values)
            if mine:
                told(database, "progress", words, number)
        return mine

    def finish(self, number: int, worker: str, judged: Judged) -> bool:
        """Keep what came of it; False if it is no longer this worker's, and nothing is kept."""
        with self.database.writing() as database:
            document = msgspec.json.encode(judged).decode()
            statement = (
                "UPDATE submissions SET state = 'done', judged = ?, worker = NULL, words = '' "
                "WHERE number = ? AND worker = ? AND state = 'judging'"
            )
            mine = changed(database, statement, (document, number, worker))
            if mine:
                _done(database, judged, number)
        return mine

    def release(self, worker: str, reason: str, counts: bool = True) -> None:
        """A worker is lost: what it had waits again, once; after that it is done, as stopped. If
        it does not count, it is as if it had not been begun."""
        with self.database.writing() as database:
            if not counts:
                statement = "UPDATE submissions SET attempts = attempts - 1 WHERE worker = ?"
                database.execute(statement, (worker,))
            _release(database, "worker = ?", (worker,), reason)
            database.execute("DELETE FROM workers WHERE name = ?", (worker,))

    def release_all(self, reason: str) -> None:
        """All workers are lost: the server that had them ended."""
        with self.database.writing() as database:
            _release(database, "1", (), reason)
            database.execute("DELETE FROM events WHERE kind = 'progress'")  # nobody is at work
            database.execute("DELETE FROM workers")


def _release(
    database: sqlite3.Connection, condition: str, values: tuple[str, ...], reason: str
) -> None:
    stopped = Judged(
        outcome="stopped",
        reason=f"its judging was cut short {MOST_ATTEMPTS} times, at last because {reason}",
    )
    query = f"SELECT number, attempts FROM submissions WHERE state = 'judging' AND {condition}"
    for number, attempts in database.execute(query, values).fetchall():
        again = attempts < MOST_ATTEMPTS
        document = None if again else msgspec.json.encode(stopped).decode()
        database.execute(
            "UPDATE submissions SET state = ?, judged = ?, worker = NULL, words = '' "
            "WHERE number = ?",
            ("waiting" if again else "done", document, number),
        )
        if again:
            told(database, "waiting", f"{reason}: it is judged once more", number)
        else:
            _done(database, stopped, number)


def _done(database: sqlite3.Connection, judged: Judged, number: int) -> None:
    """The steps on the way are of no more use: who watches is told the whole state."""
    database.execute("DELETE FROM events WHERE number = ? AND kind = 'progress'", (number,))
    told(database, "done", judged.outcome, number)


def _order(database: sqlite3.Connection, devices: Collection[str] | None) -> list[int]:
    """Of those that wait for one of the devices."""
    query = "SELECT number, login, device, state FROM submissions WHERE state != 'done'"
    rows = database.execute(query).fetchall()
    logins = tuple({login for _, login, _, _ in rows})
    marks = ", ".join("?" * len(logins))
    last = database.execute(
        f"SELECT login, max(turn) FROM submissions WHERE login IN ({marks}) GROUP BY login", logins
    ).fetchall()
    waiting = [
        Waiting(number, login)
        for number, login, device, state in rows
        if state == "waiting" and (devices is None or device in devices)
    ]
    running = Counter(login for _, login, _, state in rows if state == "judging")
    return order(waiting, running, dict(last))
