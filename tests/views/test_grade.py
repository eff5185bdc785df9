"""A class as people, spreadsheets, browsers and Gradescope get it."""

from __future__ import annotations

import csv
import io
import json
from html.parser import HTMLParser

from rich.console import Console

from tilewright.environment import fingerprint
from tilewright.results.grade import Graded, GradeRecord, Judged
from tilewright.views import grade as view
from tilewright.views import history

FAST = Judged(outcome="right", operations={"conv1": (2e-3,) * 9}, baseline={"conv1": (6e-3,) * 9})
HOSTILE = "<script>alert(1)</script>\n=cmd|' /C calc'!A0"
CLASS = (
    Graded(student="anna", file="anna.cl", sha256="0", judged=FAST, rank=1, points=100),
    Graded(
        student="=1+1", file="<b>.cl", sha256="1", rank=None, points=0,
        judged=Judged(outcome="wrong", reason=HOSTILE),
    ),
)  # fmt: skip


def record(submissions: tuple[Graded, ...] = CLASS) -> GradeRecord:
    return GradeRecord(
        network="ece408", device="opencl", device_name="PoCL", environment=fingerprint(),
        folder="<i>class</i>", seed=1, images=100, batch=100, compared_with="direct",
        points_formula="100 if time < 1 else 0", limit_seconds=10.0, submissions=submissions,
    )  # fmt: skip


def shown(width: int) -> str:
    screen = Console(width=width, file=io.StringIO())
    screen.print(view.table(record()))
    return str(screen.file.getvalue())  # type: ignore[attr-defined]


def test_the_table_fits_and_has_rank_time_and_points() -> None:
    for width in (60, 100):
        lines = shown(width).splitlines()
        assert all(len(line) <= width for line in lines)
    assert "3.00x" in shown(100) and "2.00 ms" in shown(100) and "wrong" in shown(100)


def test_the_history_shows_what_the_command_printed() -> None:
    screen = Console(width=100, file=io.StringIO(), markup=False)
    for part in history.report(7, record()):
        screen.print(part)
    said = str(screen.file.getvalue())  # type: ignore[attr-defined]
    assert said.startswith("7: ") and "1 of 2 right: ece408 on opencl (PoCL), seed 1" in said
    assert shown(100) in said


def test_csv_is_read_back_and_computes_nothing() -> None:
    rows = list(csv.DictReader(io.StringIO(view.to_csv(record()))))
    assert [row["student"] for row in rows] == ["anna", "'=1+1"]
    assert rows[0]["points"] == "100" and float(rows[0]["seconds"]) == 2e-3
    assert float(rows[0]["faster"]) == 3.0 and rows[1]["reason"] == HOSTILE


class Page(HTMLParser):
    """What a browser would make of it: which elements there are, and what is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onclick", "onerror"}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_needs_nothing_and_hostile_names_stay_text() -> None:
    page = Page()
    page.feed(view.to_html(record()))
    assert not page.open and not page.seen & {"script", "link", "img", "iframe", "b", "i"}
    assert HOSTILE in page.text and "<i>class</i>" in page.text and "<b>.cl" in page.text


def test_gradescope_gets_score_verdict_and_leaderboard() -> None:
    right, wrong = (
        json.loads(view.to_gradescope(record((each,)), most_points=100)) for each in CLASS
    )
    assert right["score"] == 100 and right["tests"][0]["status"] == "passed"
    assert {"name": "Time (ms)", "value": 2.0, "order": "asc"} in right["leaderboard"]
    assert wrong["score"] == 0 and wrong["tests"][0]["status"] == "failed"
    assert HOSTILE in wrong["tests"][0]["output"] and len(wrong["leaderboard"]) == 1
