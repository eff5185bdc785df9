"""What students see."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from tilewright.classroom.handed_in import NotTaken
from tilewright.classroom.store import Event
from tilewright.classroom.web.boards import RANKING
from tilewright.classroom.web.drawing import bars, progress
from tilewright.classroom.web.hand_in import accepted, attached
from tilewright.classroom.web.live import changes
from tilewright.classroom.web.sources import shown
from tilewright.classroom.web.states import place_of
from tilewright.classroom.web.visit import Visit, forget_cookie


def home(visit: Visit) -> Response:
    desk = visit.desk
    rows = []
    for task in desk.course.tasks.values():
        found = desk.boards(task, visit.person)
        mine = next((row for row in found.rows if row.mine), None)
        rows.append({"task": task, "closed": task.closed(visit.now), "mine": mine})
    return visit.page("home.html", rows=rows)


def task(visit: Visit, problem: str | None = None, status: int = 200) -> Response:
    desk, found = visit.desk, visit.task(visit.request.path_params["name"])
    mine = desk.store.of_person(visit.person.login, found.name)
    return visit.page(
        "task.html", status, task=found, problem=problem, closed=found.closed(visit.now),
        board=desk.boards(found, visit.person), submissions=mine[::-1],
        drawn=progress(mine), origin=f"{visit.request.url.scheme}://{visit.request.url.netloc}",
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
    it = visit.submission()
    task, store = visit.task(it.task), visit.desk.store
    judged, files = it.judged, store.files(it.number).items()
    drawn = bars(judged) if judged else []
    rounds = min(map(len, judged.operations.values()), default=0) if judged else 0
    return visit.page(
        "submission.html", it=it, task=task, position=store.position(it.number), bars=drawn,
        rounds=rounds, late=task.late_percent(it.handed_in),
        place=place_of(visit.desk.boards, store, task, it),
        sources=[shown(*file, judged.reason if judged else "") for file in files],
    )  # fmt: skip


def me(visit: Visit) -> Response:
    work = []
    for each in visit.desk.course.tasks.values():
        mine = visit.desk.store.of_person(visit.person.login, each.name)
        work.append((each, mine[::-1], progress(mine)))
    return visit.page("me.html", work=work)


def revoke(visit: Visit) -> Response:
    """Whatever was lost or forgotten somewhere is of no use from now on."""
    visit.desk.store.revoke(visit.person.login)
    response = RedirectResponse("/login", 303)
    forget_cookie(response, visit.request)
    return response
