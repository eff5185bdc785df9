"""What holds for every answer and every request, whatever path it is of."""

from __future__ import annotations

import asyncio
import re

import pytest

from tilewright.classroom.web import pages
from tilewright.classroom.web.guards import HEADERS
from tilewright.classroom.web.tries import MOST_NAMES, Tries
from tilewright.classroom.web.uploads import LARGEST_BODY


@pytest.mark.parametrize(
    "path", ["/", "/login", "/nothing", "/static/live.js", "/static/class.css", "/api/tasks", "/me"]
)
def test_every_answer_forbids_what_is_not_needed(school, path):
    answer = school.visitor().get(path)
    for name, value in HEADERS.items():
        if name != "Cache-Control" or "/static/" not in path:
            assert answer.headers[name] == value, name
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy and "http:" not in policy and "*" not in policy


def test_a_mistake_of_ours_is_guarded_too_and_tells_a_reference_to_the_log(school, monkeypatch):
    monkeypatch.setattr(pages, "progress", lambda *given: 1 / 0)
    answer = school.browser("anna", may_fail=True).get("/tasks/first")
    assert answer.status_code == 500 and "ZeroDivision" not in answer.text
    (reference,) = re.findall(r"tell your teacher \(reference (\w{8})\)", answer.text)
    log = school.store.log.read_text()
    assert f"reference {reference}: GET /tasks/first\n" in log and "in task\n" in log
    shown = school.browser("tina").get("/teacher").text
    assert reference in shown and "ZeroDivisionError" in shown and str(school.store.log) in shown
    assert answer.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]


BEGUN = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.cl"\r\n\r\n'


def posted(app, path: str, size: int, **headers: str) -> tuple[int, int]:
    """The status of an answer, and how many bytes of a body of that size were taken for it: a test
    client would take all of them first."""
    taken, statuses = 0, []

    async def receive():
        nonlocal taken
        body = b"x" * 2**14 if taken else BEGUN
        taken += len(body)
        return {"type": "http.request", "body": body, "more_body": taken < size}

    async def send(message):
        statuses.append(message.get("status"))

    given = {"content-type": "multipart/form-data; boundary=b", "host": "class.test", **headers}
    scope = {
        "type": "http", "http_version": "1.1", "method": "POST", "path": path, "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "scheme": "http", "server": ("class.test", 80), "client": ("1.2.3.4", 5), "root_path": "",
    }  # fmt: skip
    asyncio.run(app(scope, receive, send))
    return statuses[0], taken


def test_a_body_is_cut_off_while_it_streams(school):
    bearer = f"Bearer {school.store.new_token('anna', 'test')}"
    status, taken = posted(school.app, "/api/submissions", 2**30, authorization=bearer)
    assert status == 413 and taken <= LARGEST_BODY + 2**14
    # What a client announces is believed only if it is too much.
    announced = {"authorization": bearer, "content-length": "99999999999999"}
    assert posted(school.app, "/api/submissions", 2**30, **announced) == (413, 0)
    announced["content-length"] = "5"
    status, taken = posted(school.app, "/api/submissions", 2**30, **announced)
    assert status == 413 and taken <= LARGEST_BODY + 2**14
    assert school.store.waiting() == []


def test_nothing_of_a_body_is_read_of_who_is_not_known(school):
    assert posted(school.app, "/api/submissions", 2**20) == (401, 0)
    assert posted(school.app, "/tasks/first", 2**20) == (403, 0)


def test_tries_are_counted_in_a_window_and_for_each_name():
    now = [0.0]
    tries = Tries(2, 60.0, lambda: now[0])
    assert [tries.take("a"), tries.take("a"), tries.take("b")] == [0.0, 0.0, 0.0]
    now[0] = 20.0
    assert tries.take("a") == 40.0
    tries.forgive("a")
    assert tries.take("a") == 0.0
    now[0] = 60.5
    assert tries.take("a") == 0.0 and tries.take("a") > 0


def test_names_that_were_tried_are_forgotten_in_the_end():
    tries = Tries(1, 60.0, lambda: 0.0)
    for number in range(MOST_NAMES + 10):
        tries.take(str(number))
    assert len(tries._taken) == MOST_NAMES
    tries.forgive("never tried")
