"""Coming in and going out: codes, invitations, sessions, cookies, forms that are ours."""

from __future__ import annotations

import pytest

from tests.classroom.web.conftest import INVITE
from tilewright.classroom.web.app import ADDRESSES, LOGINS, PATHS
from tilewright.classroom.web.visit import csrf


def test_somebody_unknown_is_sent_to_log_in_and_then_where_they_wanted(school):
    visitor = school.visitor()
    answer = visitor.get("/tasks/first")
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=/tasks/first")
    assert 'value="/tasks/first"' in visitor.get(answer.headers["location"]).text
    there = visitor.log_in("anna", school.code("anna"), next="/tasks/first")
    assert (there.status_code, there.headers["location"]) == (303, "/tasks/first")
    assert "The first" in visitor.get("/tasks/first").text


@pytest.mark.parametrize(
    "wanted", ["//evil.test", "https://evil.test", "/\\evil.test", "javascript:alert(1)", "/a\n/b"]
)
def test_nobody_is_sent_elsewhere(school, wanted):
    visitor = school.visitor()
    there = visitor.log_in("anna", school.code("anna"), next=wanted)
    assert (there.status_code, there.headers["location"]) == (303, "/")


@pytest.mark.parametrize("code", ["", "x", "a" * 10_000, "\0", "ü", "' OR 1=1 --"])
def test_a_wrong_code_lets_nobody_in(school, code):
    school.code("anna")
    visitor = school.visitor()
    answer = visitor.log_in("anna", code)
    assert answer.status_code == 403 and "no such login with this code" in answer.text
    assert visitor.get("/").status_code == 303


def test_another_s_code_lets_nobody_in(school):
    assert school.visitor().log_in("anna", school.code("ben")).status_code == 403
    assert school.visitor().log_in(" ANNA ", school.code("anna")).status_code == 303


def test_a_session_is_new_at_every_login_and_ends_with_logout(school):
    visitor = school.visitor()
    visitor.get("/login")
    before = visitor.client.cookies["tilewright"]
    visitor.log_in("anna", school.code("anna"))
    inside = visitor.client.cookies["tilewright"]
    assert inside != before
    # What was known before is worth nothing.
    thief = school.visitor()
    thief.client.cookies["tilewright"] = before
    assert thief.get("/").status_code == 303
    assert visitor.get("/").status_code == 200
    assert visitor.post("/logout").status_code == 303
    thief.client.cookies["tilewright"] = inside
    assert thief.get("/").status_code == 303


def test_the_cookie_is_for_the_server_alone(school):
    said = school.visitor().get("/login").headers["set-cookie"]
    assert said.startswith("tilewright=") and "HttpOnly" in said and "SameSite=lax" in said
    assert "Secure" not in said  # a browser would not send it back without https
    said = school.visitor("https://class.test").get("/login").headers["set-cookie"]
    assert said.startswith("__Host-tilewright=") and "Secure" in said and "Path=/" in said
    assert "Domain" not in said


def test_over_https_a_session_works_and_browsers_are_told_to_stay_there(school):
    visitor = school.visitor("https://class.test")
    assert visitor.log_in("anna", school.code("anna")).status_code == 303
    page = visitor.get("/")
    assert page.status_code == 200 and "max-age" in page.headers["strict-transport-security"]


def test_an_invitation_registers_and_shows_a_code_once(school):
    visitor = school.visitor()
    answer = visitor.log_in("carl", INVITE, name="Carl C.")
    assert answer.status_code == 200 and "carl" in answer.text
    code = answer.text.partition('class="status"><code>')[2].partition("<")[0]
    assert visitor.get("/").status_code == 200
    assert school.store.person("carl").name == "Carl C."
    assert school.visitor().log_in("carl", code).status_code == 303
    # A login that is taken stays whose it is, also by invitation.
    again = school.visitor().log_in("carl", INVITE)
    assert again.status_code == 403 and "taken" in again.text
    assert school.visitor().log_in("anna", INVITE).status_code == 403


@pytest.mark.parametrize("login", ["", "../x", "a b", "<b>", "x" * 65, "\u202e"])
def test_an_invitation_registers_no_login_that_is_none(school, login):
    answer = school.visitor().log_in(login, INVITE)
    assert answer.status_code == 403 and "<b>" not in answer.text
    assert {each.login for each in school.store.people()} == {"anna", "ben", "tina"}


def test_without_an_invite_code_nobody_registers(make_school):
    school = make_school("")
    for code in ("", "None", INVITE):
        assert school.visitor().log_in("carl", code).status_code == 403


def test_codes_cannot_be_tried_for_long(school):
    visitor, most = school.visitor(), LOGINS[0]
    tried = [visitor.log_in("anna", f"x{n}").status_code for n in range(most + 1)]
    assert tried == [403] * most + [429]
    right = visitor.log_in("anna", school.code("anna"))
    assert right.status_code == 429 and int(right.headers["retry-after"]) > 0
    assert visitor.log_in("ben", school.code("ben")).status_code == 303


def test_an_address_cannot_try_many_logins_and_good_ones_do_not_count(school):
    visitor, most = school.visitor(), ADDRESSES[0]
    desk = school.app.state.desk
    for _ in range(3):
        assert school.visitor().log_in("anna", school.code("anna")).status_code == 303
    for n in range(most):
        assert not desk.addresses.take("testclient"), n
    assert visitor.log_in("ben", school.code("ben")).status_code == 429


FORMS = [path for how, path, _, _ in PATHS if how == "POST" and not path.startswith("/api/")]


def test_a_form_that_is_not_ours_does_nothing(school):
    number, visitor = str(school.handed_in("anna")), school.browser("tina")
    before = school.store.last_event()
    assert len(FORMS) > 5
    for path in FORMS:
        there = path.replace("{name}", "first").replace("{number:int}", number)
        for forged in ({}, {"csrf": ""}, {"csrf": "0" * 64}, {"csrf": "ü"}):
            answer = visitor.client.post(there, data=forged, files={"files": ("a.cl", b"x")})
            assert answer.status_code == 403 and "load the page again" in answer.text, there
    assert school.store.last_event() == before and visitor.get("/me").status_code == 200


def test_a_form_s_token_is_of_one_session(school):
    anna, ben = school.browser("anna"), school.browser("ben")
    stolen = ben.token("/me")
    assert anna.client.post("/logout", data={"csrf": stolen}).status_code == 403
    assert stolen == csrf(ben.client.cookies["tilewright"])
    answer = anna.client.post(
        "/logout", data={"csrf": anna.token("/me")}, headers={"Sec-Fetch-Site": "cross-site"}
    )
    assert answer.status_code == 403


def test_what_was_lost_can_be_revoked(school):
    program, visitor, other = school.program("anna"), school.browser("anna"), school.browser("anna")
    assert program.get("/api/tasks").status_code == 200
    assert visitor.post("/me/revoke").status_code == 303
    assert program.get("/api/tasks").status_code == 401
    assert other.get("/").status_code == 303
