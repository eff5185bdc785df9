"""What programs ask for, in JSON: `tilewright submit` is one of them."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from tilewright.classroom.course import Task
from tilewright.classroom.web.entry import entrant
from tilewright.classroom.web.hand_in import accepted, download
from tilewright.classroom.web.live import State, stream
from tilewright.classroom.web.states import Following, state_of
from tilewright.classroom.web.visit import Visit


def new_token(visit: Visit) -> Response:
    found = entrant(visit)
    label = visit.field("label") or "a program"
    made = visit.desk.store.new_token(found.person.login, label)
    return JSONResponse(
        {
            "token": made,
            "login": found.person.login,
            "name": found.person.name,
            "class": visit.desk.course.title,
            "code": found.code,
        }
    )


def tasks(visit: Visit) -> Response:
    return JSONResponse(
        {"tasks": [_task(each, visit) for each in visit.desk.course.tasks.values()]}
    )


def _task(task: Task, visit: Visit) -> State:
    return {
        "name": task.name,
        "title": task.title,
        "network": task.network_name,
        "device": str(task.device),
        "images": task.images,
        "batch": task.batch,
        "against": task.against,
        "closes": None if task.closes is None else task.closes.isoformat(),
        "closed": task.closed(visit.now),
    }


def submit(visit: Visit) -> Response:
    task = visit.task(visit.field("task"))
    number = accepted(visit, task)
    return JSONResponse(state_of(visit.desk.boards, visit.desk.store, number))


def submissions(visit: Visit) -> Response:
    """One's own, without what came of them, which is asked for one by one."""
    mine = visit.desk.store.of_person(visit.person.login)
    made = [
        {
            "number": each.number,
            "task": each.task,
            "file": each.file,
            "ranked": each.ranked,
            "handed_in": each.handed_in.isoformat(),
            "state": each.state,
            "outcome": each.judged.outcome if each.judged else None,
        }
        for each in mine
    ]
    return JSONResponse({"submissions": made})


def submission(visit: Visit) -> Response:
    found, store = visit.submission(), visit.desk.store
    state = state_of(visit.desk.boards, store, found.number)
    return JSONResponse({**state, "files": list(store.files(found.number))})


def events(visit: Visit) -> Response:
    found, desk = visit.submission(), visit.desk
    following = Following(desk.boards, desk.bell, found.number)
    return stream(desk.bell, visit.person.login, following, following.concerned)


def file(visit: Visit) -> Response:
    return download(visit)


def leaderboard(visit: Visit) -> Response:
    """As this person may see it."""
    task = visit.task(visit.request.path_params["name"])
    found = visit.desk.boards(task, visit.person)
    rows = [
        {
            "name": row.name,
            "rank": row.rank,
            "seconds": row.seconds,
            "times": row.times,
            "points": row.points,
            "number": row.number,
            "mine": row.mine,
            "mark": row.mark,
        }
        for row in found.rows
    ]
    facts = {"task": task.name, "right": found.right, "students": found.students}
    return JSONResponse({**facts, "rows": rows})
