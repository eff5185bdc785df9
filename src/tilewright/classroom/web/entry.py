"""Coming in and going out. By a login code, or, who is new, by the class's invite code."""

from __future__ import annotations

import re
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from tilewright.classroom.store import Person
from tilewright.classroom.web.visit import Visit, forget_cookie, same, set_cookie
from tilewright.errors import TilewrightError

LONGEST_SECRET = 200
LOCAL = re.compile(r"/(?!/)[\w/.-]*", re.ASCII)  # a path of ours, whatever a link says
WRONG = "there is no such login with this code"


@dataclass(frozen=True)
class Entrant:
    """`code` is the login code of who registered just now: it is shown this once."""

    person: Person
    code: str | None = None


def entrant(visit: Visit) -> Entrant:
    """Who is at the door, by the fields login, code and name; tries are limited."""
    login, code = visit.field("login").casefold(), visit.field("code")
    desk = visit.desk
    for tries, name in ((desk.addresses, visit.address), (desk.logins, login[:100])):
        if wait := tries.take(name):
            raise too_many(wait)
    if len(code) > LONGEST_SECRET:
        raise HTTPException(403, WRONG)
    found = _known(visit, login, code)
    for tries, name in ((desk.addresses, visit.address), (desk.logins, login[:100])):
        tries.forgive(name)
    return found


def _known(visit: Visit, login: str, code: str) -> Entrant:
    store, invite = visit.desk.store, visit.desk.course.invite
    if person := store.person_of_code(login, code):
        return Entrant(person)
    if invite is None or not same(code, invite):
        raise HTTPException(403, WRONG)
    try:
        given = store.register(login, visit.field("name") or login)
    except TilewrightError as error:
        raise HTTPException(403, str(error)) from error
    new = store.person(login)
    assert new is not None
    return Entrant(new, given)


def too_many(wait: float) -> HTTPException:
    seconds = int(wait) + 1
    return HTTPException(
        429, f"too many at a time: try again in {seconds} s", {"Retry-After": str(seconds)}
    )


def login_page(visit: Visit) -> Response:
    if visit.someone is not None:
        return RedirectResponse("/", 303)
    wanted = visit.request.query_params.get("next", "/")
    return visit.page("login.html", next=wanted, login="", problem=None)


def log_in(visit: Visit) -> Response:
    """A new session, whatever the cookie was before: what somebody planted is worth nothing."""
    wanted = visit.field("next")
    wanted = wanted if LOCAL.fullmatch(wanted) else "/"
    try:
        found = entrant(visit)
    except HTTPException as error:
        if error.status_code != 403:
            raise
        shown = {"next": wanted, "login": visit.field("login")[:100], "problem": error.detail}
        return visit.page("login.html", 403, **shown)
    visit.desk.store.end_session(visit.secret)
    secret = visit.desk.store.new_session(found.person.login, visit.now)
    response: Response = RedirectResponse(wanted, 303)
    if found.code is not None:
        response = visit.page("welcome.html", login=found.person.login, code=found.code)
    set_cookie(response, visit.request, secret)
    return response


def log_out(visit: Visit) -> Response:
    visit.desk.store.end_session(visit.secret)
    response = RedirectResponse("/login", 303)
    forget_cookie(response, visit.request)
    return response
