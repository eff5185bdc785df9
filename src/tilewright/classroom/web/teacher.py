"""What teachers see, and what they may do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from starlette.responses import RedirectResponse, Response, StreamingResponse

from tilewright.classroom import export
from tilewright.classroom.mishaps import MISHAP, MOST_LISTED
from tilewright.classroom.similar import (
    LEAST_SHARE,
    MOST_LINES,
    in_class,
    side_by_side,
    source,
)
from tilewright.classroom.store import Event
from tilewright.classroom.web.boards import RANKING
from tilewright.classroom.web.hand_in import attached, attachment
from tilewright.classroom.web.live import changes
from tilewright.classroom.web.visit import Visit
from tilewright.files import file_name

LONGEST_REASON = 500
MOST_PAIRS = 20  # that are shown side by side
MOST_ROWS = 500  # of submissions on one page
PART = 2**16  # bytes of a file at a time


def overview(visit: Visit) -> Response:
    store = visit.desk.store
    students = [person for person in store.people() if not person.teacher]
    tasks = []
    for task in visit.desk.course.all_tasks.values():
        found = store.of_task(task.name)
        came = {each.login for each in found}
        missing = [person for person in students if person.login not in came]
        latest = found[::-1][:MOST_ROWS]
        timed = store.marks(task)
        asked = store.marks_asked(task.name) > (timed.asked if timed else 0)
        shown = {"missing": missing, "count": len(found), "latest": latest}
        tasks.append({"task": task, "timed": timed, "asked": asked, **shown})
    return visit.page(
        "teacher.html", tasks=tasks, students=len(students), workers=store.workers(),
        queue=[*store.judging(), *store.waiting()], mishaps=store.latest(MISHAP, MOST_LISTED),
        log=store.log,
    )  # fmt: skip


def events(visit: Visit) -> Response:
    def concerns(event: Event) -> bool:
        return event.kind in RANKING or event.kind in ("judging", MISHAP)

    return changes(visit.desk.bell, visit.person.login, concerns)


def marks(visit: Visit) -> Response:
    """Timed again, when nobody waits."""
    task = visit.task(visit.request.path_params["name"])
    visit.desk.store.ask_marks(task.name, visit.person.login)
    return RedirectResponse("/teacher", 303)


def rerun(visit: Visit) -> Response:
    found = visit.submission()
    visit.desk.store.rerun(found.number, visit.person.login)
    return RedirectResponse(f"/submissions/{found.number}", 303)


def disqualify(visit: Visit) -> Response:
    """With a reason, which the student reads; without one, it counts again."""
    found, reason = visit.submission(), visit.field("reason")[:LONGEST_REASON]
    visit.desk.store.disqualify(found.number, reason or None, visit.person.login)
    return RedirectResponse(f"/submissions/{found.number}", 303)


def similar(visit: Visit) -> Response:
    """The sources of two students that are nearly the same, side by side."""
    task, store = visit.task(visit.request.path_params["name"]), visit.desk.store
    found = in_class(store, task)
    pairs = []
    for pair in found[:MOST_PAIRS]:
        lines = side_by_side(source(store, pair.first), source(store, pair.second))
        both = store.submission(pair.first), store.submission(pair.second)
        pairs.append({"both": both, "share": pair.share, "lines": lines})
    return visit.page(
        "similar.html", task=task, pairs=pairs, left_out=len(found) - len(pairs),
        enough=LEAST_SHARE, most_lines=MOST_LINES,
    )  # fmt: skip


def gradescope(visit: Visit) -> Response:
    found = visit.submission()
    text = export.gradescope(visit.desk.store, visit.task(found.task), found)
    return attached(text, "results.json", "application/json")


def grades(visit: Visit) -> Response:
    task = visit.task(visit.request.path_params["name"])
    return attached(export.to_csv(visit.desk.store, task), f"{task.name}.csv", "text/csv")


def everything(visit: Visit) -> Response:
    """Made in a folder of its own: the file has no name any more while it is sent."""
    with TemporaryDirectory(prefix="tilewright-class-") as folder:
        path = Path(folder) / "class.zip"
        export.to_zip(visit.desk.course, visit.desk.store, path)
        file = path.open("rb")
    name = f"{file_name(visit.desk.course.title)}.zip"
    return StreamingResponse(_parts(file), headers=attachment(name), media_type="application/zip")


def _parts(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while part := file.read(PART):
            yield part
