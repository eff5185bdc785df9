"""`tilewright history`, and the verbs whose results it has."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from tests.results import made
from tests.test_climb import quick, trusting  # noqa: F401
from tilewright.cli import main
from tilewright.files import history_file
from tilewright.results.history import History
from tilewright.rungs import rungs


@pytest.fixture
def history():
    """The one that commands use if they are not told another."""
    return History(history_file())


@pytest.fixture
def filled(history):
    for index in range(3):
        times = {"serial": made.TIMES, "fused": tuple(each / (index + 1) for each in made.TIMES)}
        date = made.environment(date=f"2026-11-1{index}T12:00:00+00:00")
        history.add(made.ladder_record(times, environment=date))
    history.add(made.run_record(network="large", device="cuda:1"))
    return history


def said(capsys, *arguments):
    assert main(["history", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main(["history", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def listed(text):
    return [int(number) for number in re.findall(r"^ *(\d+)  ", text, re.MULTILINE)]


def test_nothing_is_kept_yet(history, capsys):
    assert f"nothing that fits is kept in {history.path}" in said(capsys)
    assert not history.path.exists()


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ([], [1, 2, 3, 4]),
        (["--verb", "ladder"], [1, 2, 3]),
        (["--net", "large"], [4]),
        (["--device", "cuda"], [4]),
        (["--device", "cuda:1"], [4]),
        (["--since", "2026-11-11T12:00"], [2, 3, 4]),
        (["--rung", "serial"], [1, 2, 3]),
        (["--last", "2"], [3, 4]),
        (["--verb", "ladder", "--last", "1"], [3]),
    ],
)
def test_lists(filled, capsys, options, numbers):
    text = said(capsys, *options)
    assert listed(text) == numbers
    assert max(map(len, text.splitlines())) <= 100


def test_a_long_list_says_what_it_leaves_out(filled, capsys, monkeypatch):
    monkeypatch.setattr("tilewright.cli.history.SHOWN", 3)
    text = said(capsys)
    assert listed(text) == [2, 3, 4]
    assert "1 older ones: --last 4 shows them" in text


def test_shows_a_record_as_it_was_printed(filled, capsys):
    text = said(capsys, "show", "2")
    assert text.startswith("2: 2026-11-11 12:00 UTC, Tilewright 0.2.0, a CPU, 2 cores, a GPU\n")
    assert "$ tilewright ladder" in text
    assert "small on cpu (a CPU): 100 images, 9 rounds in turns" in text
    assert "0.7500" in text
    assert "large over 100 images" in said(capsys, "show", "4")


def test_compares(filled, capsys):
    text = said(capsys, "compare", "1", "3")
    assert re.search(r"^serial .* no more than noise", text, re.MULTILINE)
    assert re.search(r"^fused .* 3\.00x .* faster", text, re.MULTILINE)


def test_exports(filled, tmp_path, capsys):
    rows = list(csv.DictReader(io.StringIO(said(capsys, "export", "--verb", "ladder"))))
    assert {row["id"] for row in rows} == {"1", "2", "3"}
    out = tmp_path / "all.json"
    assert said(capsys, "export", "--format", "json", "--out", str(out)) == ""
    assert [kept["id"] for kept in json.loads(out.read_text())["records"]] == [1, 2, 3, 4]


def test_removes(filled, capsys):
    assert "removed 1, 4" in said(capsys, "remove", "1", "4")
    assert listed(said(capsys)) == [2, 3]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sho"], "unknown action 'sho'; did you mean 'show'?"),
        (["show"], "history show takes one ID, not 0"),
        (["compare", "1"], "history compare takes two IDs, not 1"),
        (["remove"], "history remove takes one ID or more, not 0"),
        (["list", "1"], "history list takes no ID, not 1"),
        (["show", "1", "--last", "2"], "history show takes no --last"),
        (["--out", "x"], "history list takes no --out"),
        (["show", "9"], "has no record 9"),
        (["show", "0"], "'0' is not a whole number from 1"),
        (["compare", "1", "4"], "cannot compare a ladder with a run: they time"),
        (["export", "--format", "parquet"], "name a file with --out"),
        (["--since", "yesterday"], "'yesterday' is no date"),
        (["--verb", "dance"], "unknown verb 'dance'"),
    ],
)
def test_mistakes_are_one_line(filled, capsys, arguments, words):
    assert words in refused(capsys, *arguments)


def test_a_run_is_kept_when_asked_for(history, tmp_path, capsys):
    command = ["run", "--images", "3", "--rung", "im2col"]
    assert main(command) == 0
    assert history.entries() == []
    capsys.readouterr()
    assert main([*command, "--save", "--json", "-"]) == 0
    streams = capsys.readouterr()
    assert streams.err.endswith(f"kept as 1 in {history.path}: see `tilewright history`\n")
    assert json.loads(streams.out)["images"] == history.read(1).images == 3
    other = tmp_path / "other.sqlite"
    assert main([*command, "--history", str(other)]) == 0
    assert (len(History(other).entries()), len(history.entries())) == (1, 1)
    assert "im2col over" not in said(capsys, "show", "1", "--history", str(other))


@pytest.mark.usefixtures("quick", "trusting")
def test_a_ladder_is_kept_unless_told_otherwise(history, capsys, monkeypatch):
    from tilewright import climb

    monkeypatch.setattr(climb, "rungs", lambda device: rungs(device)[2:4])
    command = ["ladder", "--net", "cifar10", "--images", "1", "--repeats", "1"]
    assert main([*command, "--no-save"]) == 0
    assert history.entries() == []
    assert "kept" not in capsys.readouterr().err
    assert main(command) == 0
    streams = capsys.readouterr()
    assert streams.err.endswith(f"kept as 1 in {history.path}: see `tilewright history`\n")
    assert said(capsys, "show", "1").partition("\n\n")[2] == streams.out


def test_what_cannot_be_kept_is_printed_all_the_same(tmp_path, capsys):
    for name, content in (("foreign", b"no database" * 99), ("folder", None)):
        path = tmp_path / name
        path.mkdir() if content is None else path.write_bytes(content)
        assert main(["run", "--images", "2", "--rung", "im2col", "--history", str(path)]) == 2
        streams = capsys.readouterr()
        assert "Correctness" in streams.out
        assert streams.err.startswith("tilewright: the result was not kept: ")
        assert str(path) in streams.err
        assert streams.err.count("\n") == 1


def test_keeping_and_not_keeping_is_a_mistake(capsys):
    assert main(["ladder", "--no-save", "--history", "x.sqlite"]) == 2
    assert "not allowed with" in capsys.readouterr().err


def test_lists_and_comparisons_have_formats(filled, capsys):
    import json

    made = json.loads(said(capsys, "list", "--format", "json"))
    assert [row["id"] for row in made["tables"][0]["rows"]] == [1, 2, 3, 4]
    assert said(capsys, "compare", "1", "3", "--format", "latex").startswith("% \\usepackage")
    assert main(["history", "list", "--format", "parquet"]) == 2
    assert "list has no --format parquet" in capsys.readouterr().err
    assert main(["history", "export", "--format", "latex"]) == 2
