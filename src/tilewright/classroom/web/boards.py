"""Leaderboards for many who look at the same time: where everybody stands is worked out once, and
again when something has changed it."""

from __future__ import annotations

import threading
import time

from tilewright.classroom.course import Course, Task
from tilewright.classroom.marks import TIMED
from tilewright.classroom.ranking import Board, Standing, board, standings
from tilewright.classroom.store import Person, Store

# Events that change a leaderboard. New people make none, so it is not kept for long.
RANKING = ("done", "waiting", "disqualified", "counts again", TIMED)
KEPT_SECONDS = 30.0


class Boards:
    """Of one class."""

    def __init__(self, course: Course, store: Store) -> None:
        self.course, self.store = course, store
        self._known: dict[str, tuple[int, float, list[Standing]]] = {}
        self._lock = threading.Lock()

    def __call__(self, task: Task, viewer: Person | None) -> Board:
        """As this person may see it, with all that happened until now."""
        with self._lock:  # of many who ask, one works
            latest = self.store.last_event(RANKING)
            event, until, found = self._known.get(task.name, (-1, 0.0, []))
            if event != latest or time.monotonic() > until:
                found = standings(self.store, task)
                self._known[task.name] = latest, time.monotonic() + KEPT_SECONDS, found
        return board(self.course, self.store, task, viewer, found)
