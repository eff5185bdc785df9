"""`--format`: the tables of every verb in every format."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tilewright.cli import main


def printed(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_a_run_in_json_has_the_numbers_of_its_record(tmp_path, capsys):
    kept = tmp_path / "run.json"
    text = printed(capsys, "run", "--images", "20", "--json", str(kept), "--format", "json")
    phases, layers = json.loads(text)["tables"][:2]
    record = json.loads(kept.read_text())
    assert phases["rows"][-1] == {"phase": "total", "time (s)": record["total_seconds"],
                                  "share (%)": 100.0}  # fmt: skip
    assert layers["title"] == "Forward, layer by layer"
    times = {row["layer"]: row["time (s)"] for row in layers["rows"]}
    assert times["forward (wall)"] == record["forward_seconds"]
    assert times["tanh1"] is None
    words = {row["layer"]: row["time in words"] for row in layers["rows"]}
    assert words["tanh1"] == "in conv1" and words["conv1"] is None


def test_a_network_in_csv(capsys):
    rows = list(csv.DictReader(io.StringIO(printed(capsys, "show", "ece408", "--format", "csv"))))
    sizes = {row["layer"]: row["bytes (B)"] for row in rows}
    assert sizes["conv1"] == str(4 * (70 * 70 + 12 * 49 + 12 * 64 * 64))


@pytest.mark.parametrize(("shape", "start"), [("markdown", "**"), ("latex", "% \\usepackage")])
def test_devices_to_paste(capsys, shape, start):
    assert printed(capsys, "devices", "--format", shape).startswith(start)


def test_a_format_that_is_none_is_refused(capsys):
    assert main(["show", "ece408", "--format", "pdf"]) == 2
    assert "'pdf'" in capsys.readouterr().err
