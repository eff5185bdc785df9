"""Others' submissions: how fast they are, for the class, and nothing else of them."""

from __future__ import annotations

import msgspec
import pytest

from tests.classroom.made import HERE, right
from tilewright.classroom.web.app import application
from tilewright.results.grade import Judged, Profile

FILES = {"bens-own.cl": b"// an idea 4711", "bens.h": b"// 4711"}
RIGHT = msgspec.structs.replace(
    right(0.002, 0.003), reason="bens-own.cl:1: a remark 4711", correct={"100": 0.91},
    profile={"conv1": Profile(flops=5e9, share_of_peak=0.25)}, worst_share_of_bound=0.5,
)  # fmt: skip


@pytest.mark.parametrize("names", ["names", "pseudonyms"])
def test_a_place_on_the_board_leads_to_its_figures(make_school, names):
    school = make_school(names=names)
    number = school.handed_in("ben", RIGHT, FILES)
    anna, ben = school.browser("anna"), school.store.person("ben")
    assert f'<a href="/submissions/{number}">' in anna.get("/tasks/first").text
    page = anna.get(f"/submissions/{number}")
    assert page.status_code == 200
    for words in ("conv1", "2.00 ms", "3.00 ms", "1.50x", "25.0 %", "0.9100", "Rank 1 of 1"):
        assert words in page.text
    assert f"by {ben.name if names == 'names' else ben.pseudonym} for" in page.text
    assert (ben.name in page.text) is (names == "names")
    for words in ("4711", "bens", "Disqualify", "Judge again", "(ben)"):
        assert words not in page.text
    for path in ("/files/bens-own.cl", "/events"):
        assert anna.get(f"/submissions/{number}{path}").status_code == 404
    assert school.program("anna").get(f"/api/submissions/{number}").status_code == 404
    assert "4711" in school.browser("ben").get(f"/submissions/{number}").text
    assert "4711" in school.browser("tina").get(f"/submissions/{number}").text


def test_what_has_no_place_is_its_owners_alone(make_school):
    school = make_school()
    closed = [
        school.handed_in("ben", RIGHT, FILES, ranked=False),
        school.handed_in("ben", Judged(outcome="wrong", reason="4711"), FILES),
        school.handed_in("ben", RIGHT, FILES),
        school.handed_in("ben", RIGHT, FILES),
        school.handed_in("tina", RIGHT, FILES),
        school.handed_in("ben", files=FILES),
    ]
    school.store.disqualify(closed[2], "copied", "tina")
    school.store.rerun(closed[3], "tina")
    anna, missing = school.browser("anna"), 9999
    for number in (*closed, missing):
        answer = anna.get(f"/submissions/{number}")
        assert answer.status_code == 404 and "for you to see" in answer.text


def test_who_is_shown_only_themselves_opens_nothing_else(make_school):
    school = make_school(names="own")
    number = school.handed_in("ben", RIGHT, FILES)
    assert school.browser("anna").get(f"/submissions/{number}").status_code == 404
    assert school.browser("ben").get(f"/submissions/{number}").status_code == 200


def test_an_earlier_one_is_open_and_says_that_another_is_better(make_school):
    school = make_school()
    slow = school.handed_in("ben", right(0.002))
    school.handed_in("ben", right(0.001))
    school.handed_in("ben", right(0.0005), ranked=False)
    shown = school.browser("anna").get("/tasks/first").text
    assert '<td class="number">2</td></tr>' in shown  # nobody learns of private runs
    page = school.browser("anna").get(f"/submissions/{slow}").text
    assert "Another is the best of theirs." in page


def test_a_task_no_longer_offered_keeps_its_pages(make_school):
    school = make_school(tasks={"first": "", "second": 'title = "The second"\npoints = "9"'})
    number = school.handed_in("anna", right(), task="second")
    (school.course.folder / "tasks" / "second.toml").unlink()
    del school.course.tasks["second"]
    school.app = application(school.store.with_gone(school.course), school.store)
    anna, tina = school.browser("anna"), school.browser("tina")
    gone = "(task no longer offered)"
    for page in (anna.get("/me"), anna.get(f"/submissions/{number}"), tina.get("/teacher")):
        assert page.status_code == 200 and "The second" in page.text and gone in page.text
    assert "rank 1 of 1, 9 points" in anna.get(f"/submissions/{number}").text
    assert gone not in school.browser("ben").get("/me").text
    assert "second" not in anna.get("/").text
    board = anna.get("/tasks/second").text
    assert "task no longer offered" in board and "Hand in</h2>" not in board
    refused = anna.post("/tasks/second", {}, files={"files": ("a.cl", b"x")})
    assert refused.status_code == 400 and "no longer offered" in refused.text
    program = school.program("anna")
    assert [each["name"] for each in program.get("/api/tasks").json()["tasks"]] == ["first"]
    assert program.get(f"/api/submissions/{number}").json()["files"] == ["mine.cl"]
    assert program.get(f"/api/submissions/{number}/files/mine.cl").status_code == 200
    assert "anna,Anna A.,1,9," in tina.get("/teacher/export/second.csv").text
    assert tina.get(f"/teacher/gradescope/{number}.json").json()["score"] == 9


def test_the_teacher_has_rungs_timed_again(make_school):
    school = make_school(tasks={"first": 'marks = ["direct"]'})
    tina, task = school.browser("tina"), school.course.tasks["first"]
    assert "not timed yet" in tina.get("/teacher").text
    assert tina.post("/teacher/marks/first").headers["location"] == "/teacher"
    assert "asked for; it is done when nobody waits" in tina.get("/teacher").text
    school.store.keep_marks(task, HERE, school.store.marks_asked("first"), {"direct": right()})
    assert "on a device, driver 1" in tina.get("/teacher").text
    taken = school.store.marks(task).taken
    board = school.browser("anna").get("/tasks/first").text
    assert f"{taken:%Y-%m-%d %H:%M} UTC</time> on a device." in board
    assert school.browser("anna").post("/teacher/marks/first").status_code == 404
