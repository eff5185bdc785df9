"""Every path with everybody who may not: no way from one student to another's work."""

from __future__ import annotations

import pytest

from tests.classroom.made import right
from tilewright.classroom.web.app import PATHS
from tilewright.classroom.web.visit import Needs

SECRET = b"// Anna's own idea 4711"


def filled(path: str, number: int) -> str:
    return (
        path.replace("{name}", "first")
        .replace("{number:int}", str(number))
        .replace("{name:path}", "mine.cl")
    )


@pytest.fixture
def number(school):
    return school.handed_in("anna", right(), {"mine.cl": SECRET}, ranked=False)


def test_nobody_gets_anything_without_saying_who_they_are(school, number):
    visitor = school.visitor()
    visitor.get("/login")
    for how, path, needs, _ in PATHS:
        if needs in (Needs.NOBODY, Needs.NO_TOKEN):
            continue
        answer = visitor.client.request(how, filled(path, number), follow_redirects=False)
        expected = 401 if needs is Needs.TOKEN else 303 if how == "GET" else 403
        assert answer.status_code == expected, path
        assert "4711" not in answer.text and "Anna" not in answer.text
    assert {path for _, path, needs, _ in PATHS if needs in (Needs.NOBODY, Needs.NO_TOKEN)} == {
        "/login",
        "/api/tokens",
    }


def test_a_cookie_is_no_token_and_a_token_no_cookie(school, number):
    browser, program = school.browser("anna"), school.program("anna")
    token = program.headers["authorization"].removeprefix("Bearer ")
    session = browser.client.cookies["tilewright"]
    assert browser.get(f"/api/submissions/{number}").status_code == 401
    assert program.get("/me", follow_redirects=False).status_code == 303
    for said in (f"Bearer {session}", f"Basic {token}", token, "Bearer", f"Bearer {token}x"):
        answer = browser.get("/api/tasks", headers={"Authorization": said})
        assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert (
        program.get("/api/tasks", headers={"Authorization": f"bearer {token}"}).status_code == 200
    )


def test_of_another_s_submission_nothing_can_be_had(school, number):
    ben, program = school.browser("ben"), school.program("ben")
    token, before = ben.token("/me"), school.store.last_event()
    tried = 0
    for how, path, needs, _ in PATHS:
        if "{number:int}" not in path:
            continue
        asked = program if needs is Needs.TOKEN else ben.client
        there = filled(path, number)
        answer = asked.request(how, there, data={"csrf": token} if how == "POST" else None)
        assert answer.status_code == 404, path
        assert "4711" not in answer.text and "mine" not in answer.text
        # One that is not there looks the same.
        missing = asked.request(
            how, filled(path, 9999), data={"csrf": token} if how == "POST" else None
        )
        assert missing.text == answer.text
        tried += 1
    assert tried >= 8 and school.store.last_event() == before


def test_what_is_the_teacher_s_is_no_student_s(school, number):
    anna = school.browser("anna")
    token, before = anna.token("/me"), school.store.last_event()
    for how, path, needs, _ in PATHS:
        if needs is Needs.TEACHER:
            data = {"csrf": token, "reason": "no"} if how == "POST" else None
            answer = anna.client.request(how, filled(path, number), data=data)
            assert answer.status_code == 404, path
    assert school.store.last_event() == before
    assert "/teacher" not in anna.get("/").text


def test_owners_and_teachers_get_what_is_theirs(school, number):
    for login in ("anna", "tina"):
        browser, program = school.browser(login), school.program(login)
        assert SECRET.decode().replace("'", "&#39;") in browser.get(f"/submissions/{number}").text
        for answer in (
            browser.get(f"/submissions/{number}/files/mine.cl"),
            program.get(f"/api/submissions/{number}/files/mine.cl"),
        ):
            assert answer.content == SECRET
            assert answer.headers["content-type"] == "application/octet-stream"
            assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    "name", ["../mine.cl", "%2e%2e/mine.cl", "mine.cl/", "/etc/passwd", "MINE.CL", "", "mine.cl%00"]
)
def test_a_file_is_had_by_its_name_alone(school, number, name):
    answer = school.program("anna").get(f"/api/submissions/{number}/files/{name}")
    assert answer.status_code == 404


@pytest.mark.parametrize("number", ["0", "-1", "9" * 30, "1e3", "x", "1.0", "%31"])
def test_a_number_that_is_none_is_not_found(school, number):
    browser = school.browser("anna")
    assert browser.get(f"/submissions/{number}").status_code == 404
    assert browser.get("/tasks/nothing").status_code == 404
    assert browser.get("/tasks/..%2f..%2fclass.toml").status_code == 404


def test_what_was_handed_in_for_a_task_that_is_gone_is_not_found(school, number):
    del school.course.tasks["first"]
    browser, program = school.browser("anna"), school.program("anna")
    assert browser.get(f"/submissions/{number}").status_code == 404
    assert program.get(f"/api/submissions/{number}").status_code == 404
    assert program.get("/api/submissions").json()["submissions"][0]["number"] == number
    assert school.browser("tina").get("/teacher").status_code == 200
