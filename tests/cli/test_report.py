"""`tilewright report`: from records to files, whole or not at all."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.results.made import run_record
from tests.views.report.made import everything
from tilewright.cli import main
from tilewright.reporting import collect as collecting
from tilewright.reporting import pdf
from tilewright.results import page as documents
from tilewright.results.history import History
from tilewright.views.report import html

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
H200 = [
    str(RESULTS / f"2026-11-{name}.json")
    for name in (
        "16-ladder-resnet8-h200", "15-profile-h200-direct-managed",
        "15-profile-h200-padded-resident",
    )
]  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(html, "library", lambda: "")  # a megabyte that is the same in every page
    return tmp_path


@pytest.fixture
def raw(folder):
    path = folder / "raw.json"
    path.write_text(documents.text(everything()))
    return str(path)


def test_records_of_a_gpu_become_a_page_where_there_is_none():
    assert main(["report", "--from", *H200]) == 0
    text = Path("report.html").read_text()
    for words in ("resnet8 on cuda (NVIDIA H200", "cudaMallocManaged", "on the device",
                  "direct, managed"):  # fmt: skip
        assert words in text, words
    assert main(["report", "--from", *H200, "--milestone", "--out", "course.md"]) == 0
    course = Path("course.md").read_text()
    assert "## 7. The first GPU kernel" in course
    assert "| Op Time conv1, ms |" in course


def test_each_output_in_its_format_and_the_default(raw, monkeypatch):
    monkeypatch.setattr(pdf, "browser", lambda: "chromium")
    monkeypatch.setattr(pdf, "to_pdf", lambda text: b"%PDF-" + text[:15].encode())
    outputs = ["--out", "a.html", "--out", "a.md", "--out", "a.pdf"]
    assert main(["report", "--from", raw, *outputs]) == 0
    assert Path("a.html").read_text().startswith("<!doctype html>")
    assert Path("a.md").read_text().startswith("# small: from a for-loop")
    assert Path("a.pdf").read_bytes().startswith(b"%PDF-<!doctype html>")
    assert sorted(path.name for path in Path().iterdir()) == [
        "a.html", "a.md", "a.pdf", "a.words.md", "raw.json"
    ]  # fmt: skip


def test_words_are_merged_when_the_page_is_made_again(raw):
    assert main(["report", "--from", raw]) == 0
    words = Path("report.words.md")
    assert "\n# shared\n" in words.read_text()
    written = words.read_text().replace("# shared\n", "# shared\n\nIt was *my* idea.\n")
    words.write_text(written)
    assert main(["report", "--from", raw]) == 0
    assert "It was <em>my</em> idea." in Path("report.html").read_text()
    assert words.read_text() == written


def test_words_that_have_no_place_are_named(raw, capsys):
    Path("report.words.md").write_text("# elsewhere\n\nLost.\n\n# ladder\n\nFound.\n\n# empty\n")
    assert main(["report", "--from", raw]) == 0
    error = capsys.readouterr().err
    assert "report.words.md has under “# elsewhere”: this page has no such place" in error
    assert "ladder" not in error and "empty" not in error


def test_records_of_the_history(tmp_path):
    history = tmp_path / "kept.sqlite"
    number = History(history).add(run_record(network="kept one"))
    assert main(["report", "--from", str(number), "--history", str(history)]) == 0
    assert "kept one" in Path("report.html").read_text()


def test_a_bundle_has_all_of_it_and_is_the_same_again(folder):
    hostile = "../../up/<b>"
    Path("raw.json").write_text(documents.text(everything(network=hostile)))
    for name in ("a.zip", "b.zip"):
        given = ["report", "--from", "raw.json", "--out", "r.html", "--bundle", name]
        assert main(given) == 0
    assert Path("a.zip").read_bytes() == Path("b.zip").read_bytes()
    with zipfile.ZipFile("a.zip") as archive:
        names = archive.namelist()
        assert json.loads(archive.read("report.json"))["records"][0]["network"] == hostile
        assert archive.read("report.html") == Path("r.html").read_bytes()
        assert archive.read("words.md") == Path("r.words.md").read_bytes()
        assert b"plan of direct" in archive.read("plans/up-b-cuda-direct.json")
        assert b"a < b && b > c" in archive.read("kernels/up-b-cuda-direct/direct_conv-conv1.cl")
        assert archive.read("tables/01-ladder-01.csv").startswith(b"rung,")
    assert not any(".." in name or name.startswith("/") for name in names)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--out", "report.doc"], "--out report.doc: a page is .html, .md or .pdf"),
        (["--out", "no/such/a.html"], "cannot write no/such/a.html"),
        (["--bundle", "report.tar"], "--bundle report.tar: a bundle is a .zip"),
        (["--out", "a.pdf"], "apt install chromium"),
        (["--net", "a", "--net", "b", "--weights", "w"], "--weights is of one network"),
        (["--from", "empty.json"], "there is no record in empty.json"),
        (["--from", "other.json"], "other.json is no result of Tilewright"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_before_anything(
    folder, capsys, monkeypatch, given, said
):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(collecting, "collect", lambda *given: pytest.fail("it measures"))
    Path("empty.json").write_text(documents.text([]))
    Path("other.json").write_text('{"schema": "other/1"}')
    assert main(["report", *given]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert {path.name for path in folder.iterdir()} == {"empty.json", "other.json"}


def test_stopped_half_way_it_leaves_the_old_page_and_no_other(folder, raw, capsys, monkeypatch):
    assert main(["report", "--from", raw]) == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}

    def stopped(wishes, parts, progress):
        parts.put(wishes[0], "ladder", everything()[:1])
        raise KeyboardInterrupt

    monkeypatch.setattr(collecting, "collect", stopped)
    assert main(["report"]) == 130
    assert "report.parts: the same command goes on from there" in capsys.readouterr().err
    parts = folder / "report.parts"
    assert len(list(parts.glob("*.json"))) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path != parts} == before


def test_what_was_left_out_is_said_and_parts_go_when_the_page_is_there(folder, capsys, monkeypatch):
    def collect(wishes, parts, progress):
        parts.problems["ece408 on cpu, run \x1b[31mserial"] = "it is on holiday"
        return list(parts.put(wishes[0], "ladder", everything()))

    monkeypatch.setattr(collecting, "collect", collect)
    assert main(["report", "--milestone"]) == 0
    error = capsys.readouterr().err
    assert "left out: ece408 on cpu, run \\x1b[31mserial: it is on holiday" in error
    assert "written: report.html; your own words go into report.words.md" in error
    assert {path.name for path in folder.iterdir()} == {"report.html", "report.words.md"}
