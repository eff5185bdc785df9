"""A submission as programs read it: the API answers with it, and streams of events repeat it."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tilewright.classroom.course import Task
from tilewright.classroom.store import Event, Store, Submitted
from tilewright.classroom.web.boards import Boards
from tilewright.classroom.web.live import State
from tilewright.views import units

# Events that may move others in the queue.
MOVING = {"waiting", "judging", "done"}


def state_of(
    boards: Boards, store: Store, number: int, place: Callable[[int], int | None] | None = None
) -> State:
    """All that its owner may know, but for the files themselves. `place` says where in the queue
    it is, if the store is not to be asked."""
    found = store.submission(number)
    assert found is not None  # nothing is ever deleted
    task = boards.course.tasks[found.task]
    judged = 0 if found.state == "judging" else None
    return {
        "number": found.number,
        "task": found.task,
        "against": task.against,
        "file": found.file,
        "ranked": found.ranked,
        "handed_in": found.handed_in.isoformat(),
        "late_percent": task.late_percent(found.handed_in),
        "state": found.state,
        "position": (place or store.position)(number) if found.state == "waiting" else judged,
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


def concerns(found: Submitted, event: Event) -> bool:
    """Whether what its owner sees may have changed."""
    return event.number == found.number or event.kind in MOVING
