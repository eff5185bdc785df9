"""What students see."""

from __future__ import annotations

from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from tilewright.classroom.course import Task
from tilewright.classroom.handed_in import NotTaken
from tilewright.classroom.ranking import name_of, open_to, owns
from tilewright.classroom.store import Event, Submitted
from tilewright.classroom.web.boards import RANKING
from tilewright.classroom.web.drawing import figures, progress
from tilewright.classroom.web.hand_in import accepted, attached
from tilewright.classroom.web.live import changes
from tilewright.classroom.web.sources import shown
from tilewright.classroom.web.states import place_of
from tilewright.classroom.web.visit import Visit, forget_cookie, nothing_to_see


def home(visit: Visit) -> Response:
    desk = visit.desk
    rows = []
    for task in desk.course.tasks.values():
        found = desk.boards(task, visit.person)
        mine = next((row for row in found.rows if row.mine), None)
        closed, late = task.closed(visit.now), task.late_percent(visit.now)
        rows.append({"task": task, "closed": closed, "late": late, "mine": mine})
    return visit.page("home.html", rows=rows)


def task(visit: Visit, problem: str | None = None, status: int = 200) -> Response:
    desk, found = visit.desk, visit.task(visit.request.path_params["name"])
    mine = desk.store.of_person(visit.person.login, found.name)
    return visit.page(
        "task.html", status, task=found, problem=problem, closed=found.closed(visit.now),
        late=found.late_percent(visit.now), board=desk.boards(found, visit.person),
        submissions=mine[::-1], drawn=progress(mine),
        origin=f"{visit.request.url.scheme}://{visit.request.url.netloc}",
    )  # fmt: skip


def submit(visit: Visit) -> Response:
    found = visit.task(visit.request.path_params["name"])
    try:
        number = accepted(visit, found)
    except NotTaken as error:
        return task(visit, str(error), 400)
    return RedirectResponse(f"/submissions/{number}", 303)


def start(visit: Visit) -> Response:
    found = visit.task(visit.request.path_params["name"])
    if found.start is None:
        raise HTTPException(404, "there is no file to start from")
    return attached(found.start.read_bytes(), found.start.name, "application/octet-stream")


def board_events(visit: Visit) -> Response:
    found = visit.task(visit.request.path_params["name"])

    def concerns(event: Event) -> bool:
        return event.task == found.name and event.kind in RANKING

    return changes(visit.desk.bell, visit.person.login, concerns)


def submission(visit: Visit) -> Response:
    """All of it for its owner and teachers; for the class, as far as the board shows it, how fast
    it is: nothing else of it comes near the page."""
    course, store = visit.desk.course, visit.desk.store
    it = visit.submission(partial(open_to, course))
    task = visit.task(it.task)
    if not owns(it, visit.person):
        return _ranked(visit, it, task)
    reason = it.judged.reason if it.judged else ""
    return visit.page(
        "submission.html", it=it, task=task, position=store.position(it.number),
        late=task.late_percent(it.handed_in), place=place_of(visit.desk.boards, store, task, it),
        figures=figures(it.judged) if it.judged else None,
        sources=[shown(*file, reason) for file in store.files(it.number).items()],
    )  # fmt: skip


def _ranked(visit: Visit, it: Submitted, task: Task) -> Response:
    """Somebody else's, by the name that the leaderboard has for them."""
    desk = visit.desk
    owner, board = desk.store.person(it.login), desk.boards(task, visit.person)
    assert owner is not None and it.judged is not None  # as it counts
    if owner.teacher:  # who only tries things out, and has no place
        raise nothing_to_see()
    row = next((row for row in board.rows if row.number == it.number), None)
    return visit.page(
        "ranked.html", number=it.number, seconds=it.seconds, row=row, right=board.right, task=task,
        name=name_of(desk.course, owner, visit.person), figures=figures(it.judged),
    )  # fmt: skip


def me(visit: Visit) -> Response:
    work = []
    for each in visit.desk.course.all_tasks.values():
        mine = visit.desk.store.of_person(visit.person.login, each.name)
        work.append((each, mine[::-1], progress(mine)))
    return visit.page("me.html", work=work)


def revoke(visit: Visit) -> Response:
    """Whatever was lost or forgotten somewhere is of no use from now on."""
    visit.desk.store.revoke(visit.person.login)
    response = RedirectResponse("/login", 303)
    forget_cookie(response, visit.request)
    return response
