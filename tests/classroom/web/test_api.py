"""The API, with whatever programs may send: an answer each time, and nobody else's."""

from __future__ import annotations

import dataclasses
import json
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.classroom.made import KERNEL, right
from tests.classroom.web.conftest import INVITE
from tests.examples import CHARACTERS, examples
from tilewright.classroom.web.app import PATHS, SUBMISSIONS
from tilewright.classroom.web.tries import Tries

DRAWN = examples(30, suppress_health_check=[HealthCheck.function_scoped_fixture])
TEXTS = st.text(CHARACTERS, max_size=40) | st.sampled_from(
    ["", "first", "../first", "yes", "no", "anna", "ben", INVITE, "a.cl", "a/b.h", "\0", "é", "'--"]
)
NAMES = TEXTS | st.sampled_from(["mine.cl", "mine.cu", "lib/a.h", "../a.cl", "/etc/passwd", ".cl"])
KINDS = st.sampled_from(
    ["multipart/form-data; boundary=b", "multipart/form-data", "application/json", "text/plain", "",
     "application/x-www-form-urlencoded", "multipart/form-data; boundary=b; charset=utf-16"]
)  # fmt: skip
BODIES = st.binary(max_size=300) | st.lists(
    st.sampled_from(
        [b"--b\r\n", b"--b--\r\n", b"\r\n", b'Content-Disposition: form-data; name="files"',
         b'; filename="mine.cl"', b"x", b"csrf=", b"&", b"\xff\xfe", b'name="task"', b"first"]
    ), max_size=20,
).map(b"".join)  # fmt: skip


@pytest.fixture
def patient(school):
    """A class that counts no tries."""
    without = {name: Tries(10**9, 1.0) for name in ("logins", "addresses", "submissions")}
    school.app.state.desk = dataclasses.replace(school.app.state.desk, **without)
    return school


@pytest.fixture
def anna(patient):
    return patient.program("anna")


def test_a_submission_s_life(patient, anna):
    made = anna.post("/api/submissions", data={"task": "first"}, files={"files": ("a.cl", b"x")})
    number = made.json()["number"]
    assert made.json()["state"] == "waiting" and made.json()["ranked"] is True
    patient.judge(right(0.25))
    found = anna.get(f"/api/submissions/{number}").json()
    assert found["judged"]["operations"] == {"conv1": [0.25] * 3} and found["files"] == ["a.cl"]
    (listed,) = anna.get("/api/submissions").json()["submissions"]
    assert listed["number"] == number
    assert patient.program("ben").get("/api/submissions").json() == {"submissions": []}


def test_submissions_are_limited_by_the_minute_for_each_person(school):
    anna, most = school.program("anna"), SUBMISSIONS[0]
    send = {"data": {"task": "first"}, "files": {"files": ("a.cl", b"x")}}
    statuses = [anna.post("/api/submissions", **send).status_code for _ in range(most + 1)]
    assert statuses == [200] * most + [429]
    assert school.program("ben").post("/api/submissions", **send).status_code == 200
    assert len(school.store.of_person("anna")) == most


@DRAWN
@given(
    task=TEXTS,
    ranked=TEXTS,
    files=st.lists(st.tuples(NAMES, st.binary(max_size=50) | st.just(b"x")), max_size=4),
)
def test_whatever_is_handed_in_is_taken_whole_or_not_at_all(patient, anna, task, ranked, files):
    store, before = patient.store, patient.store.of_person("anna")
    answer = anna.post(
        "/api/submissions", data={"task": task, "ranked": ranked},
        files=[("files", file) for file in files] or None,
    )  # fmt: skip
    after = store.of_person("anna")
    if answer.status_code == 200:
        (new,) = after[len(before) :]
        assert new.number == answer.json()["number"] and new.task == "first"
        assert sorted(store.files(new.number).values()) == sorted(dict(files).values())
        assert store.position(new.number) is not None
    else:
        assert answer.status_code in (400, 404) and answer.json()["error"]
        assert after == before


@DRAWN
@given(st.sampled_from(PATHS), KINDS, BODIES, TEXTS, st.integers(-(10**30), 10**30))
def test_whatever_is_sent_is_answered(patient, anna, path, kind, body, name, number):
    how, where, _, _ = path
    secret = patient.store.submission(1) or patient.handed_in("ben", right(), {"b.cl": b"4711"})
    assert secret
    where = where.replace("{number:int}", str(number))
    where = where.replace("{name:path}", quote(name)).replace("{name}", quote(name, safe=""))
    if where.endswith("/events"):
        return  # which may be without an end
    answer = anna.request(
        how, where, content=body if how == "POST" else None, headers={"Content-Type": kind},
        follow_redirects=False,
    )  # fmt: skip
    assert answer.status_code < 500 and "4711" not in answer.text
    if where.startswith("/api/") and answer.status_code >= 400:
        assert set(answer.json()) == {"error"} and len(answer.text) < 2000


@DRAWN
@given(login=TEXTS, code=TEXTS, name=TEXTS, label=TEXTS)
def test_whatever_is_said_at_the_door_makes_nobody_somebody_else(
    patient, anna, login, code, name, label
):
    answer = anna.post(
        "/api/tokens", data={"login": login, "code": code, "name": name, "label": label}
    )
    known = {"anna": "Anna A.", "ben": "Ben B.", "tina": "tina"}
    assert answer.status_code in (200, 403)
    if answer.status_code == 200:  # by invitation, and as nobody who was there
        assert answer.json()["login"] not in known and code.strip() == INVITE
    assert {each.login: each.name for each in patient.store.people()}.items() >= known.items()


def test_names_of_fields_and_files_do_not_end_what_they_stand_in(anna):
    name = 'x"; filename="y.cl'
    answer = anna.post("/api/submissions", data={"task": "first"}, files={"files": (name, b"x")})
    assert answer.status_code == 400 and json.loads(answer.text)


def test_too_many_files_and_fields_are_refused(patient, anna):
    many = [("files", (f"a{n}.h", b"x")) for n in range(40)]
    assert anna.post("/api/submissions", data={"task": "first"}, files=many).status_code == 400
    fields = {f"field{n}": "x" for n in range(40)} | {"task": "first"}
    files = [("files", (name, content)) for name, content in KERNEL.items()]
    assert anna.post("/api/submissions", data=fields, files=files).status_code == 400
    assert patient.store.of_person("anna") == []
