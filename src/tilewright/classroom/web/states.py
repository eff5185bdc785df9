"""A submission as programs read it: the API answers with it, and streams of events repeat it."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tilewright.classroom.course import Task
from tilewright.classroom.store import Event, Store, Submitted
from tilewright.classroom.web.boards import Boards
from tilewright.classroom.web.live import Bell, State
from tilewright.views import units

# Events that may move others in the queue.
MOVING = {"waiting", "judging", "done"}


def state_of(boards: Boards, store: Store, number: int) -> State:
    """All that its owner may know, but for the files themselves."""
    found = store.submission(number)
    assert found is not None  # nothing is ever deleted
    task = boards.course.all_tasks[found.task]
    return {
        "number": found.number,
        "task": found.task,
        "against": task.against,
        "file": found.file,
        "ranked": found.ranked,
        "handed_in": found.handed_in.isoformat(),
        "late_percent": task.late_percent(found.handed_in),
        "state": found.state,
        "position": store.position(number),
        "words": found.words,
        "judged": None if found.judged is None else msgspec.to_builtins(found.judged),
        "disqualified": found.disqualified,
        "place": place_of(boards, store, task, found),
        "path": f"/submissions/{found.number}",
    }


def place_of(boards: Boards, store: Store, task: Task, found: Submitted) -> str | None:
    """Where its owner stands, when it is judged; None for who has no place."""
    if found.state != "done":
        return None
    standing = boards(task, store.person(found.login))
    for row in standing.rows:
        if row.mine:
            which = "this is" if row.number == found.number else f"submission {row.number} is"
            points = units.plural(row.points or 0, "point")
            return f"rank {row.rank} of {standing.right}, {points}: {which} the best of yours"
    return None


class Following:
    """The state of one submission for who watches it. While others are judged, only its place in
    the queue changes, which is known for all who wait: two hundred of them ask at every step."""

    def __init__(self, boards: Boards, bell: Bell, number: int) -> None:
        self.boards, self.bell, self.number = boards, bell, number
        self.last: State = {}

    def __call__(self, events: Collection[Event]) -> State:
        mine = not self.last or any(event.number == self.number for event in events)
        place = None if mine else self.bell.places(self.number)
        if place is None:
            self.last = state_of(self.boards, self.bell.store, self.number)
        else:
            self.last = {**self.last, "position": place}
        return self.last

    def concerned(self, event: Event) -> bool:
        """Whether what its owner sees may have changed."""
        waits = self.last.get("state") == "waiting"
        return event.number == self.number or (waits and event.kind in MOVING)
