"""Every path of a class's server, and who may ask for it."""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tilewright.classroom.course import Course
from tilewright.classroom.handed_in import NotTaken
from tilewright.classroom.store import Store
from tilewright.classroom.web import api, entry, pages, teacher
from tilewright.classroom.web.boards import Boards
from tilewright.classroom.web.guards import HEADERS, Guards
from tilewright.classroom.web.live import Bell
from tilewright.classroom.web.rendering import environment
from tilewright.classroom.web.tries import Tries
from tilewright.classroom.web.uploads import LARGEST_BODY
from tilewright.classroom.web.visit import Desk, Handler, Needs, Visit, cookie, door
from tilewright.errors import TilewrightError
from tilewright.terminal import say_once

LOGINS = 10, 60.0  # tries of one login in so many seconds
ADDRESSES = 60, 60.0  # that failed, of one address: a lecture hall may have one together
SUBMISSIONS = 12, 60.0  # of one person

PERSON, TEACHER, NOBODY = Needs.PERSON, Needs.TEACHER, Needs.NOBODY
TOKEN, NO_TOKEN = Needs.TOKEN, Needs.NO_TOKEN
PATHS: tuple[tuple[str, str, Needs, Handler], ...] = (
    ("GET", "/", PERSON, pages.home),
    ("GET", "/login", NOBODY, entry.login_page),
    ("POST", "/login", NOBODY, entry.log_in),
    ("POST", "/logout", PERSON, entry.log_out),
    ("GET", "/me", PERSON, pages.me),
    ("POST", "/me/revoke", PERSON, pages.revoke),
    ("GET", "/tasks/{name}", PERSON, pages.task),
    ("POST", "/tasks/{name}", PERSON, pages.submit),
    ("GET", "/tasks/{name}/events", PERSON, pages.board_events),
    ("GET", "/tasks/{name}/start", PERSON, pages.start),
    ("GET", "/submissions/{number:int}", PERSON, pages.submission),
    ("GET", "/submissions/{number:int}/events", PERSON, api.events),
    ("GET", "/submissions/{number:int}/files/{name:path}", PERSON, api.file),
    ("GET", "/teacher", TEACHER, teacher.overview),
    ("GET", "/teacher/events", TEACHER, teacher.events),
    ("GET", "/teacher/similar/{name}", TEACHER, teacher.similar),
    ("POST", "/teacher/submissions/{number:int}/rerun", TEACHER, teacher.rerun),
    ("POST", "/teacher/submissions/{number:int}/disqualify", TEACHER, teacher.disqualify),
    ("POST", "/teacher/marks/{name}", TEACHER, teacher.marks),
    ("GET", "/teacher/gradescope/{number:int}.json", TEACHER, teacher.gradescope),
    ("GET", "/teacher/export/{name}.csv", TEACHER, teacher.grades),
    ("GET", "/teacher/export.zip", TEACHER, teacher.everything),
    ("POST", "/api/tokens", NO_TOKEN, api.new_token),
    ("GET", "/api/tasks", TOKEN, api.tasks),
    ("GET", "/api/board/{name}", TOKEN, api.leaderboard),
    ("GET", "/api/submissions", TOKEN, api.submissions),
    ("POST", "/api/submissions", TOKEN, api.submit),
    ("GET", "/api/submissions/{number:int}", TOKEN, api.submission),
    ("GET", "/api/submissions/{number:int}/events", TOKEN, api.events),
    ("GET", "/api/submissions/{number:int}/files/{name:path}", TOKEN, api.file),
)
STATIC = {
    "page.css": ("tilewright.views.report", "text/css"),  # the report's: one look for all pages
    "class.css": ("tilewright.classroom.web", "text/css"),
    "live.js": ("tilewright.classroom.web", "text/javascript"),
}
HEADINGS = {400: "That did not work", 403: "Not allowed", 404: "Not found", 429: "Too often"}


def application(course: Course, store: Store) -> Starlette:
    """The server's inside; whoever judges what is handed in works on the same store."""
    app = Starlette(
        routes=[
            *(
                Route(path, door(handler, needs), methods=[how])
                for how, path, needs, handler in PATHS
            ),
            *(Route(f"/static/{name}", _static(name)) for name in STATIC),
        ],
        middleware=[Middleware(Guards, largest_body=LARGEST_BODY)],
        exception_handlers={
            HTTPException: _refused,
            NotTaken: _not_taken,
            TilewrightError: _unable,
            Exception: _failed,
        },
    )
    app.state.desk = Desk(
        course, store, Bell(store), Boards(course, store), environment(), Tries(*LOGINS),
        Tries(*ADDRESSES), Tries(*SUBMISSIONS),
    )  # fmt: skip
    return app


def _static(name: str) -> Callable[[Request], Awaitable[Response]]:
    package, kind = STATIC[name]
    folder = files(package) if name == "page.css" else files(package) / "static"
    content = (folder / name).read_bytes()

    async def endpoint(request: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "max-age=3600"})

    return endpoint


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(request, error.status_code, error.detail, error.headers)


async def _not_taken(request: Request, error: Exception) -> Response:
    return _error(request, 400, str(error))


async def _unable(request: Request, error: Exception) -> Response:
    """The disk is full, or the like: for the teacher to read, in full, where the server runs."""
    say_once(str(error))
    return _error(request, 503, "the server cannot do that now: tell your teacher")


async def _failed(request: Request, error: Exception) -> Response:
    """A mistake of ours: outside of all guards, so it brings what they would add."""
    trace = "".join(traceback.format_exception(error))
    store: Store = request.app.state.desk.store
    reference = await run_in_threadpool(store.mishap, f"{request.method} {request.url.path}", trace)
    words = f"the server made a mistake: tell your teacher (reference {reference})"
    response = _error(request, 500, words)
    response.headers.update(HEADERS)
    return response


def _error(
    request: Request, status: int, words: str, headers: Mapping[str, str] | None = None
) -> Response:
    response: Response
    if request.url.path.startswith("/api/"):
        response = JSONResponse({"error": words}, status)
    else:
        visit = Visit(request, request.app.state.desk, None, cookie(request), FormData())
        heading = HEADINGS.get(status, "Something went wrong")
        response = visit.page("error.html", status, heading=heading, words=words)
    response.headers.update(headers or {})
    return response
