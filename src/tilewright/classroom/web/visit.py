"""The one door: who is there, what they may, and whether a form is ours. Every page and every call
of the API goes through it."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from urllib.parse import quote

from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from tilewright.classroom.course import Course, Task
from tilewright.classroom.handed_in import MOST_FILES
from tilewright.classroom.people import SESSION
from tilewright.classroom.ranking import owns
from tilewright.classroom.store import Person, Store, Submitted
from tilewright.classroom.web.boards import Boards
from tilewright.classroom.web.live import Bell
from tilewright.classroom.web.tries import Tries

MOST_FIELDS, LARGEST_FIELD = 20, 2**14


class Needs(Enum):
    """Who may come in, and how they say who they are: by a cookie or, programs, by a token."""

    NOBODY = "nobody in particular"
    PERSON = "a person of the class"
    TEACHER = "a teacher"
    TOKEN = "a person's program"
    NO_TOKEN = "any program"


@dataclass(frozen=True)
class Desk:
    """What the server has."""

    course: Course
    store: Store
    bell: Bell
    boards: Boards
    templates: Environment
    logins: Tries
    addresses: Tries
    submissions: Tries


@dataclass(frozen=True)
class Visit:
    """One request. `secret` is the cookie's, of a session or of somebody not known yet."""

    request: Request
    desk: Desk
    someone: Person | None
    secret: str
    form: FormData

    @property
    def person(self) -> Person:
        assert self.someone is not None  # the door saw to it
        return self.someone

    @property
    def now(self) -> datetime:
        return datetime.now(UTC)

    @property
    def address(self) -> str:
        return self.request.client.host if self.request.client else "unknown"

    def field(self, name: str) -> str:
        value = self.form.get(name, "")
        return value.strip() if isinstance(value, str) else ""

    def task(self, name: str) -> Task:
        """Also one that is no longer offered, and takes nothing."""
        found = self.desk.course.all_tasks.get(name)
        if found is None:
            raise HTTPException(404, "there is no such task")
        return found

    def submission(self, allowed: Callable[[Submitted, Person], bool] = owns) -> Submitted:
        """The one of the path, if it is theirs to see. Whose it is, or whether there is one, is
        not said to others."""
        # Numbers of more digits than SQLite's are of no submission.
        number = self.request.path_params["number"]
        found = self.desk.store.submission(number) if number < 2**63 else None
        if found is None or not allowed(found, self.person):
            raise nothing_to_see()
        self.task(found.task)  # which a class of an earlier Tilewright may have lost
        return found

    def page(self, template: str, status: int = 200, **facts: object) -> HTMLResponse:
        made = self.desk.templates.get_template(template)
        shown = {"course": self.desk.course, "viewer": self.someone, "pause": self.desk.bell.pause}
        text = made.render(csrf=csrf(self.secret), path=self.request.url.path, **shown, **facts)
        response = HTMLResponse(text, status)
        if self.secret and not cookie(self.request):
            set_cookie(response, self.request, self.secret)
        return response


def nothing_to_see() -> HTTPException:
    return HTTPException(404, "there is no such submission for you to see")


Handler = Callable[[Visit], Response]


def door(handler: Handler, needs: Needs) -> Callable[[Request], Awaitable[Response]]:
    """An endpoint. The handler runs in a thread: it may wait for the disk."""

    async def endpoint(request: Request) -> Response:
        desk: Desk = request.app.state.desk
        by_token = needs in (Needs.TOKEN, Needs.NO_TOKEN)
        secret = "" if by_token else cookie(request) or secrets.token_urlsafe(32)
        someone = await run_in_threadpool(_who, desk, request, secret, by_token)
        if refused := _refused(request, needs, someone):
            return refused
        if request.method != "POST":
            visit = Visit(request, desk, someone, secret, FormData())
            return await run_in_threadpool(handler, visit)
        async with request.form(
            max_files=MOST_FILES, max_fields=MOST_FIELDS, max_part_size=LARGEST_FIELD
        ) as form:
            if not by_token:
                check_csrf(request, secret, form)
            visit = Visit(request, desk, someone, secret, form)
            return await run_in_threadpool(handler, visit)

    return endpoint


def _who(desk: Desk, request: Request, secret: str, by_token: bool) -> Person | None:
    if not by_token:
        return desk.store.person_of_session(secret, datetime.now(UTC))
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return desk.store.person_of_token(token.strip()) if scheme.lower() == "bearer" else None


def _refused(request: Request, needs: Needs, someone: Person | None) -> Response | None:
    if needs in (Needs.NOBODY, Needs.NO_TOKEN):
        return None
    if someone is None:
        if needs is Needs.TOKEN:
            raise HTTPException(
                401, "no valid token: `tilewright login` gets one", {"WWW-Authenticate": "Bearer"}
            )
        if request.method != "GET":
            raise HTTPException(403, "your session has ended: log in again")
        return RedirectResponse(f"/login?next={quote(request.url.path)}", 303)
    if needs is Needs.TEACHER and not someone.teacher:
        raise HTTPException(404, "there is no such page")
    return None


def cookie_name(request: Request) -> str:
    """Over https one that no neighbouring host can set."""
    return "__Host-tilewright" if request.url.scheme == "https" else "tilewright"


def cookie(request: Request) -> str:
    return request.cookies.get(cookie_name(request), "")


def set_cookie(response: Response, request: Request, secret: str) -> None:
    response.set_cookie(
        cookie_name(request), secret, max_age=int(SESSION.total_seconds()), path="/",
        httponly=True, samesite="lax", secure=request.url.scheme == "https",
    )  # fmt: skip


def forget_cookie(response: Response, request: Request) -> None:
    response.delete_cookie(
        cookie_name(request), path="/", httponly=True, samesite="lax",
        secure=request.url.scheme == "https",
    )  # fmt: skip


def same(given: str, secret: str) -> bool:
    """In the same time, however much of it is right."""
    return hmac.compare_digest(given.encode(errors="surrogatepass"), secret.encode())


def csrf(secret: str) -> str:
    """What forms carry: nobody can know it who does not know the cookie."""
    return hmac.digest(secret.encode(), b"form", hashlib.sha256).hex()


def check_csrf(request: Request, secret: str, form: FormData) -> None:
    given = form.get("csrf", "")
    ours = isinstance(given, str) and same(given, csrf(secret))
    elsewhere = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if not ours or elsewhere:
        raise HTTPException(403, "this form is too old or not ours: load the page again")
