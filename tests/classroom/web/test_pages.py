"""What students and teachers see: standings as the teacher chose, hostile text as text."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from urllib.parse import quote

import pytest

from tests.classroom.made import HERE, KERNEL, right
from tilewright.classroom.web import boards, teacher
from tilewright.classroom.web.boards import Boards
from tilewright.classroom.web.sources import MOST_LINES
from tilewright.errors import TilewrightError
from tilewright.results.grade import Judged, Profile

HOSTILE = '</pre></title><script>alert(1)</script><img src=x onerror=alert(2)>" \u202e\x1b[2J'
NETWORK = """{"name": "net", "input": {"shape": [1, 8, 8]}, "layers": [
    {"type": "convolution", "filters": 2, "kernel": 3}]}"""
TASKS = {
    "first": """
title = "The first"
points = "min(100, 25 * baseline // time)"
marks = ["shared", "direct"]
text = "Make it *fast*. <b>bold</b> [x](javascript:alert(1))"
""",
    "second": """
title = "The second"
closes = "2026-01-01T00:00:00Z"
late = {percent_a_day = 10, days = 9}
""",
}


class Reader(HTMLParser):
    """The tags of a page, with what they have; anything that runs or fetches is found here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def check_harmless(text: str) -> None:
    """No page has a script or style of its own, a handler, or anything from elsewhere."""
    for tag, has in Reader(text).tags:
        assert tag not in ("style", "iframe", "object", "base", "img", "embed"), tag
        assert not [name for name in has if name.startswith("on") or name == "style"], has
        if tag == "script":
            assert has == {"src": "/static/live.js", "defer": None}
        for name in ("src", "href", "action", "data-live"):
            assert has.get(name, "/").startswith(("/", "#", "data:,")), has
            assert not has.get(name, "/").startswith("//"), has
    assert "\u202e" not in text and "\x1b" not in text


@pytest.fixture
def busy(make_school):
    """A class in which much has happened."""
    school = make_school(tasks=TASKS)
    school.handed_in("anna", right(0.002))
    school.handed_in("anna", right(0.001))
    school.handed_in("anna", right(0.004))
    school.handed_in("ben", right(0.0015))
    school.handed_in("ben", Judged(outcome="wrong", reason=f"mine.cl:7: {HOSTILE}"))
    marks = {"shared": right(0.0012), "direct": Judged(outcome="refused", reason="no")}
    school.store.keep_marks(school.course.tasks["first"], HERE, 0, marks)
    return school


def rows(page: str) -> list[list[str]]:
    """The leaderboard, cell by cell."""
    board = page.partition('id="board"')[2].partition("</table>")[0].partition("<tbody>")[2]
    return [
        [re.sub("<[^>]*>", "", cell).strip() for cell in re.split("</t[hd]>", row)[:-1]]
        for row in board.split("</tr>")[:-1]
    ]


def test_the_leaderboard_has_the_best_of_each_and_the_marks_among_them(busy):
    page = busy.browser("anna").get("/tasks/first").text
    ben = busy.store.person("ben").pseudonym
    assert rows(page) == [
        ["1", "Anna A. (you)", "1.00 ms", "2.00x", "50", "3"],
        ["", "shared (rung)", "1.20 ms", "", "", ""],
        ["2", ben, "1.50 ms", "1.33x", "33", "2"],
    ]
    assert "Ben" not in page and "2 of 2 students have a right kernel" in page
    assert "Make it <em>fast</em>." in page and "&lt;b&gt;bold&lt;/b&gt;" in page


@pytest.mark.parametrize(("names", "seen"), [("names", True), ("own", False)])
def test_others_are_shown_as_the_teacher_chose(make_school, names, seen):
    school = make_school(names=names)
    school.handed_in("anna", right(0.001))
    school.handed_in("ben", right(0.002))
    assert ("Ben B." in school.browser("anna").get("/tasks/first").text) is seen
    shown = [row["name"] for row in school.program("anna").get("/api/board/first").json()["rows"]]
    assert shown == (["Anna A.", "Ben B."] if seen else ["Anna A."])
    assert "Ben B." in school.browser("tina").get("/tasks/first").text


def test_standings_are_worked_out_when_something_changed_and_not_before(busy, monkeypatch):
    worked, usual = [], boards.standings
    monkeypatch.setattr(boards, "standings", lambda *given: worked.append(1) or usual(*given))
    asked, task = Boards(busy.course, busy.store), busy.course.tasks["first"]
    anna, ben = busy.store.person("anna"), busy.store.person("ben")
    assert [row.mine for row in asked(task, anna).rows] == [True, False, False]
    assert [row.mine for row in asked(task, ben).rows] == [False, False, True]
    number = busy.handed_in("ben")
    busy.store.take("w1", {"opencl"})
    asked(task, anna)
    busy.store.progress(number, "w1", "timing")
    asked(task, anna)
    assert len(worked) == 2  # at first, and when something was handed in
    busy.store.finish(number, "w1", right(0.0001))
    assert asked(task, ben).rows[0].mine and len(worked) == 3
    busy.store.disqualify(number, "copied", "tina")
    assert not asked(task, ben).rows[0].mine and len(worked) == 4


def test_nobody_learns_who_a_pseudonym_is(busy):
    told = busy.program("anna").get("/api/board/first").json()
    (other,) = [row for row in told["rows"] if not row["mine"] and not row["mark"]]
    assert other["number"] == 4 and "ben" not in json.dumps(told).casefold()


def test_the_form_hands_in_and_leads_to_the_submission(busy):
    ben = busy.browser("ben")
    answer = ben.post(
        "/tasks/first", {"ranked": "no"}, "/tasks/first",
        files=[("files", ("a.cl", b"x")), ("files", ("lib/b.h", b"y"))],
    )  # fmt: skip
    assert answer.status_code == 303
    page = ben.get(answer.headers["location"]).text
    number = int(answer.headers["location"].rpartition("/")[2])
    assert busy.store.files(number) == {"a.cl": b"x", "lib/b.h": b"y"}
    assert "Waiting: 1 in the queue" in page and "private: it does not count" in page
    assert f'data-live="/submissions/{number}/events"' in page
    busy.store.take("w1", {"opencl"})
    busy.store.progress(number, "w1", "timing 3 of 9")
    assert "Being judged: timing 3 of 9" in ben.get(f"/submissions/{number}").text
    busy.store.finish(number, "w1", right(0.003))
    done = ben.get(f"/submissions/{number}").text
    assert "data-live" not in done and "rank 2 of 2, 33 points: submission 4 is the best" in done


def test_what_cannot_be_taken_is_told_above_the_form(busy):
    ben = busy.browser("ben")
    for files, words in (
        ([("files", ("a.txt", b"x"))], "files end in"),
        ([("files", ("", b""))], "there is no file"),
        (None, "there is no file"),
    ):
        answer = ben.post("/tasks/first", {}, "/tasks/first", files=files)
        assert answer.status_code == 400 and words in answer.text and "<form" in answer.text
    closed = ben.post("/tasks/second", {}, "/tasks/first", files={"files": ("a.cl", b"x")})
    assert closed.status_code == 400 and "The second closed on 2026-01-10" in closed.text
    assert "Hand in</h2>" not in ben.get("/tasks/second").text


def test_a_verdict_has_times_answers_and_what_was_found(busy):
    correct = {"100": 0.91, "1000": 0.9, "10000": 0.8765}
    judged = Judged(
        outcome="right", operations={"conv1": (0.001,) * 3, "conv2": (0.004,) * 3},
        baseline={"conv1": (0.002,) * 3, "conv2": (0.002,) * 3}, correct=correct,
        cold={"conv2": (0.005,) * 3}, worst_share_of_bound=0.655,
        profile={"conv2": Profile(flops=5e9, share_of_peak=0.25, share_of_memory=None)},
    )  # fmt: skip
    number = busy.handed_in("ben", judged)
    page = busy.browser("ben").get(f"/submissions/{number}").text
    cells = [re.sub("<[^>]*>", "", cell) for cell in re.findall("<t[dh].*?</t[dh]>", page, re.S)]
    at = cells.index("conv2")
    assert cells[at + 2 : at + 5] == ["4.00 ms", "2.00 ms", "0.50x"]
    at = cells.index("conv2", at + 1)
    assert cells[at + 1 : at + 5] == ["5.00", "25.0 %", "", "5.00 ms"]
    assert "65.5 % of what rounding allows" in page
    assert cells[cells.index("10,000") + 1] == "0.8765" and "0.9100" in cells
    assert '<rect width="100.0%"' in page and "median of 3 rounds" in page


def test_progress_is_drawn_and_told(busy):
    page = busy.browser("anna").get("/me").text
    assert page.count("<circle") == 3 and "1: right, 2.00 ms; 2: right, 1.00 ms;" in page
    ben = busy.browser("ben").get("/me").text
    assert 'class="dot wrong"' in ben and ">not right</text>" in ben
    assert "Nothing handed in yet." in ben  # for the second task


def test_hostile_names_reasons_and_sources_stay_text(make_school):
    school = make_school(tasks=TASKS)
    school.store.enrol("eve", "<script>alert(1)</script> & Eve")
    files = {"mine.cl": HOSTILE.encode() + b"\xff\xfe", "lib/it (1).h": b"<!--"}
    judged = Judged(outcome="wrong", reason=HOSTILE)
    first = school.handed_in("eve", judged, files)
    school.handed_in("eve", right(), files)
    school.store.disqualify(first, HOSTILE.replace("\x1b", ""), "tina")
    for login in ("eve", "tina"):
        browser = school.browser(login)
        for path in ("/", "/me", "/tasks/first", "/submissions/1", "/submissions/2"):
            page = browser.get(path)
            assert page.status_code == 200
            check_harmless(page.text)
    shown = school.browser("eve").get(f"/submissions/{first}").text
    assert shown.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3 and "\\u202e\\x1b[2J" in shown
    for path in ("/teacher", "/teacher/similar/first"):
        check_harmless(school.browser("tina").get(path).text)
    check_harmless(school.visitor().get(f"/login?next={quote(HOSTILE)}").text)
    check_harmless(school.visitor().log_in(HOSTILE, HOSTILE).text)
    check_harmless(school.visitor().get(f"/{quote(HOSTILE)}").text)


def test_of_a_long_source_a_page_has_the_beginning(school):
    files = {"mine.cl": b"x\n" * 300_000, "a.h": b"y" * 400_000, "b.h": b"1\r\n2\n"}
    number = school.handed_in("anna", files=files)
    page = school.browser("anna").get(f"/submissions/{number}").text
    assert (
        page.count("<li>x</li>") == MOST_LINES and page.count("more of it than a page shows") == 2
    )
    assert len(page) < 400_000 and "<li>1</li><li>2</li></ol>" in page


def test_what_the_compiler_says_stands_at_its_line(school):
    reason = (
        "mine.cl does not compile: 2 errors\n  mine.cl:2:5: unknown name <b>\n      floot x;\n"
        "mine.cl:2:5: unknown name <b>\nlib/a.h:1: no\nmine.cl:99: behind the end\nother.cl:1: no"
    )
    files = {"mine.cl": b"one\ntwo\nthree\n", "lib/a.h": b"four"}
    number = school.handed_in("anna", Judged(outcome="does not compile", reason=reason), files)
    page = school.browser("anna").get(f"/submissions/{number}").text
    assert '<li>one</li><li class="found">two<em>unknown name &lt;b&gt;</em></li><li>three' in page
    assert '<li class="found">four<em>no</em></li></ol>' in page and page.count("<em>") == 2


def test_a_full_disk_is_told_to_the_teacher_and_nothing_is_said_to_be_kept(
    school, monkeypatch, capsys
):
    def full(*given):
        raise TilewrightError("cannot write /srv/class.sqlite: disk is full")

    monkeypatch.setattr(school.store, "hand_in", full)
    file = {"files": ("a.cl", b"x")}
    page = school.browser("anna").post("/tasks/first", {}, "/tasks/first", files=file)
    told = school.program("anna").post("/api/submissions", data={"task": "first"}, files=file)
    for answer in (page, told):
        assert answer.status_code == 503 and "tell your teacher" in answer.text
        assert "/srv" not in answer.text
    assert "disk is full" in capsys.readouterr().err


def test_the_teacher_sees_queue_workers_and_who_is_missing(busy):
    waiting = busy.handed_in("ben")
    busy.store.beat("opencl abc", "opencl", "judges 3")
    page = busy.browser("tina").get("/teacher").text
    assert "Queue: 1 not yet judged" in page and f'href="/submissions/{waiting}"' in page
    assert "opencl abc" in page and "judges 3" in page
    assert "2 of 2 students have not submitted" in page  # the second task
    assert "Anna A. (anna)" in page and 'data-live="/teacher/events"' in page


def test_of_many_submissions_a_page_has_the_latest(busy, monkeypatch):
    tina = busy.browser("tina")
    assert "The latest" not in tina.get("/teacher").text
    monkeypatch.setattr(teacher, "MOST_ROWS", 2)
    page = tina.get("/teacher").text
    assert "5 submissions" in page and "The latest 2; the zip below has all." in page
    assert 'href="/submissions/5"' in page and 'href="/submissions/3"' not in page


def test_judging_again_and_disqualifying(busy):
    tina, anna = busy.browser("tina"), busy.browser("anna")
    answer = tina.post("/teacher/submissions/2/disqualify", {"reason": "copied <b>"})
    assert answer.status_code == 303
    page = anna.get("/submissions/2").text
    assert "Disqualified: copied &lt;b&gt;" in page and "submission 1 is the best of yours" in page
    assert rows(anna.get("/tasks/first").text)[2][2] == "2.00 ms"
    tina.post("/teacher/submissions/2/disqualify", {"reason": " "})
    assert busy.store.submission(2).disqualified is None
    assert tina.post("/teacher/submissions/2/rerun").status_code == 303
    assert busy.store.submission(2).state == "waiting"


def test_exports(busy):
    tina = busy.browser("tina")
    table = list(csv.DictReader(io.StringIO(tina.get("/teacher/export/first.csv").text)))
    assert [(row["login"], row["points"]) for row in table] == [("anna", "50"), ("ben", "33")]
    score = tina.get("/teacher/gradescope/2.json").json()
    assert score["score"] == 50 and score["tests"][0]["status"] == "passed"
    answer = tina.get("/teacher/export.zip")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''Convolutions.zip"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as made:
        assert made.testzip() is None
        assert made.read("submissions/first/anna/2/files/mine.cl") == KERNEL["mine.cl"]


def test_near_identical_sources_stand_side_by_side(school):
    own = "\n".join(
        f"float sum_{n} = weights[{n}] * input[row + {n}]; if (sum_{n} > {n}) total += sum_{n};"
        for n in range(20)
    )
    school.handed_in("anna", files={"mine.cl": own.encode()})
    tina = school.browser("tina")
    assert "No two students" in tina.get("/teacher/similar/first").text
    school.handed_in("ben", files={"mine.cl": f"// mine\n{own.replace('sum', 'x')}".encode()})
    page = tina.get("/teacher/similar/first").text
    assert "anna and ben: 100.0 % in common" in page
    assert "sum_7 &gt; 7" in page and "x_7 &gt; 7" in page and page.count('class="same"') >= 20


def test_a_file_to_start_from(school):
    anna, tasks = school.browser("anna"), school.course.tasks
    assert anna.get("/tasks/first/start").status_code == 404
    start = school.course.folder / "tasks" / "start.cl"
    start.write_text("// begin here")
    tasks["first"] = replace(tasks["first"], start=start)
    assert 'href="/tasks/first/start"' in anna.get("/tasks/first").text
    assert anna.get("/tasks/first/start").text == "// begin here"


def test_late_work_is_said_to_be_late_before_it_is_handed_in(make_school):
    closed = datetime.now(UTC) - timedelta(hours=30)
    late = f'closes = "{closed.isoformat()}"\nlate = {{percent_a_day = 10, days = 9}}'
    anna = make_school(tasks={"first": late}).browser("anna")
    assert "worth 20 % less" in anna.get("/tasks/first").text
    assert "(late: 20 % less)" in anna.get("/").text


def test_nobody_learns_where_the_class_lies(make_school):
    school = make_school(tasks={"first": 'network = "net.json"'}, files={"net.json": NETWORK})
    folder = str(school.course.folder)
    anna = school.browser("anna")
    school.handed_in("anna", right())
    for path in ("/", "/me", "/tasks/first", "/submissions/1"):
        assert folder not in anna.get(path).text
    assert "net.json on opencl" in anna.get("/tasks/first").text
    (told,) = school.program("anna").get("/api/tasks").json()["tasks"]
    assert told["network"] == "net.json"
