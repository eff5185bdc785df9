"""Handing in, and getting back what was handed in."""

from __future__ import annotations

from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import Response

from tilewright.classroom.course import Task
from tilewright.classroom.web.entry import too_many
from tilewright.classroom.web.uploads import files_of
from tilewright.classroom.web.visit import Visit


def accepted(visit: Visit, task: Task) -> int:
    """The number of what the form has. When this returns, it is on the disk."""
    files = files_of(visit.form)
    if wait := visit.desk.submissions.take(visit.person.login):
        raise too_many(wait)
    ranked = visit.field("ranked") != "no"
    return visit.desk.store.hand_in(visit.person.login, task, files, ranked, visit.now)


def download(visit: Visit) -> Response:
    """One file of a submission, as it was, and never as a page."""
    files = visit.desk.store.files(visit.submission().number)
    name = visit.request.path_params["name"]
    if name not in files:
        raise HTTPException(404, "there is no such file")
    return attached(files[name], name.rpartition("/")[2], "application/octet-stream")


def attached(content: bytes | str, name: str, kind: str) -> Response:
    """To be kept, not shown."""
    return Response(content, media_type=kind, headers=attachment(name))


def attachment(name: str) -> dict[str, str]:
    return {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}"}
