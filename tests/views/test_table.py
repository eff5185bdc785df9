"""One table in every format: numbers and units right, nothing cut, nothing that would be markup."""

from __future__ import annotations

import csv
import io
import json

import pytest
from rich.cells import cell_len
from rich.console import Console

from tilewright.views import colours, units
from tilewright.views.formats import document
from tilewright.views.formats.latex import escape
from tilewright.views.table import FORMATS, Column, Listed, facts, table

HOSTILE = "a_b & 100% of $x^2$ #1 {c} ~d \\e <f> | `g` --h"


def sample():
    made = table(
        "Layers of a_b", "layer", ">time", "%share", Column("GFLOP/s", "number", spare=1),
        "what holds it up",
    )  # fmt: skip
    made.add_row("conv1", units.seconds(0.0327), units.share(0.25), units.digits(131.72),
                 colours.limit("arithmetic"))  # fmt: skip
    made.add_row(HOSTILE, units.seconds(2.5), units.share(0.75), "-", "=cmd()")
    made.add_section()
    made.add_row("total", units.seconds(2.5327), units.share(1), units.digits(72.8), "")
    return made


def shown(made, width, **settings):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False, **settings)
    console.print(made)
    return console.file.getvalue()


def test_csv_has_all_digits_and_the_unit_in_the_heading():
    rows = list(csv.reader(io.StringIO(document([sample(), "a note"], "csv"))))
    assert rows[0] == ["layer", "time (s)", "share (%)", "GFLOP/s", "what holds it up"]
    assert rows[1] == ["conv1", "0.0327", "25.0", "131.72", "arithmetic"]
    # Nothing is an empty cell, and a formula is a text to a spreadsheet.
    assert rows[2][3:] == ["", "'=cmd()"]


def test_csv_of_several_tables_names_each():
    lines = document([sample(), sample()], "csv").splitlines()
    assert lines.count("# Layers of a_b") == 2
    assert lines.count("") == 1


def test_json_has_numbers_with_their_units():
    made = json.loads(document(["first\n  and second", sample()], "json"))
    (found,) = made["tables"]
    assert made["notes"] == ["first and second"]
    assert found["columns"][1] == {"name": "time (s)", "kind": "number", "unit": "s"}
    assert found["rows"][0]["time (s)"] == 0.0327
    assert found["rows"][1]["GFLOP/s"] is None
    assert found["rows"][1]["layer"] == HOSTILE


def test_markdown_keeps_its_columns_whatever_is_in_them():
    lines = document([sample()], "markdown").splitlines()
    assert lines[0] == r"**Layers of a\_b**"
    assert lines[3] == "| --- | --: | --: | --: | --- |"
    assert lines[4] == "| conv1 | 32.7 ms | 25.0 % | 132 | arithmetic |"
    assert r"\<f\> \| \`g\`" in lines[5]
    assert lines[6].startswith("| **total** | **2.53 s** |")


def test_latex_is_escaped_and_ruled():
    text = document([sample(), "100 % of it"], "latex")
    lines = text.splitlines()
    assert "100 \\% of it" in lines
    begin = lines.index(r"\begin{tabular}{@{}lrrrl@{}}")
    assert lines[begin + 1] == r"\toprule"
    assert r"conv1 & 32.7\,ms & 25.0\,\% & 132 & arithmetic \\" in lines
    assert [lines.count(each) for each in (r"\midrule", r"\bottomrule")] == [2, 1]
    rows = lines[begin:]
    assert all(line.replace(r"\&", "").count("&") == 4 for line in rows if line.endswith(r"\\"))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a_b", r"a\_b"), ("50 %", r"50 \%"), ("\\", r"\textbackslash{}"), ("{}", r"\{\}"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"), ("3 µs", r"3 $\mu$s"),
        ("≈1.2x", r"$\approx$1.2x"), ("Müller", "Müller"), ("图", r"\texttt{U+56FE}"),
        ("--json", "-{}-json"), ("'a' \"b\"", "'a' ''b''"), ("ṩ", r"\texttt{U+1E69}"),
        ("two\nlines", "two lines"),
        ("\x1b[2J", r"\textbackslash{}x1b[2J"),
    ],
)  # fmt: skip
def test_latex_prints_text_as_it_is(text, written):
    assert escape(text) == written


def test_a_row_may_begin_with_a_bracket_in_latex():
    made = table("", "name", ">time")
    made.add_row("[memcpy HtoD]", units.seconds(1))
    assert r"{}[memcpy HtoD] & 1.00\,s" in document([made], "latex").splitlines()[-4]


def test_a_minus_is_one_in_latex():
    made = table("", "what", ">time")
    made.add_row("overlap", units.seconds(-0.5))
    assert r"overlap & $-500$\,ms \\" in document([made], "latex")


@pytest.mark.parametrize("shape", [shape for shape in FORMATS if shape != "text"])
def test_facts_have_no_heading_and_every_format(shape):
    made = facts("Summary")
    made.add_row("Speed", "fast")
    assert "fast" in document([made], shape)
    assert "Summary" not in shown(made, 100)


def test_numbers_of_facts_have_rows_of_their_own_in_files():
    made = facts("Summary")
    two = [("user", units.seconds(0.25)), ("CPU", units.share(0.5))]
    made.add_row("Process", Listed("250 ms user, 50.0 % CPU", two))
    made.add_row("Peak memory", units.size(2e6))
    made.add_row("Proof", "none")
    rows = list(csv.reader(io.StringIO(document([made], "csv"))))
    assert rows == [
        ["name", "value", "unit", "in words"], ["Process: user", "0.25", "s", ""],
        ["Process: CPU", "50.0", "%", ""], ["Peak memory", "2000000.0", "B", ""],
        ["Proof", "", "", "none"],
    ]  # fmt: skip
    assert "250 ms user, 50.0 % CPU" in shown(made, 100)


def test_files_have_seconds_whatever_unit_a_column_shows():
    made = table("Times", "rung", Column("conv1\nwarm", "number", unit="ms"))
    made.add_row("direct", units.milliseconds(0.0125))
    made.add_row("padded", "WRONG")
    assert list(csv.reader(io.StringIO(document([made], "csv")))) == [
        ["rung", "conv1 warm (s)", "conv1 warm in words"], ["direct", "0.0125", ""],
        ["padded", "", "WRONG"],
    ]  # fmt: skip
    assert "| rung | conv1 warm, ms |" in document([made], "markdown")
    assert shown(made, 100).splitlines()[2].split() == ["rung", "warm,", "ms"]


def test_two_units_in_a_column_of_numbers_are_a_mistake():
    made = table("", "what", ">much")
    made.add_row("time", units.seconds(1))
    made.add_row("faults", units.count(3))
    with pytest.raises(ValueError, match="'much' have units"):
        document([made], "json")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_number_is_cut_at_any_width(width):
    made = table("Op times", "conv", *(f">rung-number-{n}" for n in range(25)))
    for layer in range(3):
        made.add_row(f"conv{layer}", *(units.digits(100 * layer + n + 0.25) for n in range(25)))
    text = shown(made, width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert all(f"rung-number-{n}" in text for n in range(25))
    assert all(cell in text.split() for row in made.rows for cell in row)


def test_what_can_be_spared_goes_first_and_is_named():
    made = sample()
    assert "131" not in shown(made, 50) and "GFLOP/s" in shown(made, 50).splitlines()[-1]
    assert "132" in shown(made, 100)


def test_bars_and_colours_are_for_terminals():
    plain = shown(sample(), 120)
    assert "█" not in plain and "\x1b" not in plain
    seen = shown(sample(), 120, force_terminal=True, no_color=False, color_system="standard")
    assert "█████████" in seen and "\x1b[32m" in seen
    assert "\x1b[3" not in shown(sample(), 120, force_terminal=True, no_color=True)


def test_two_columns_of_one_name_are_a_mistake():
    with pytest.raises(ValueError, match="bytes"):
        table("", ">in\nbytes", ">in bytes")


def test_more_cells_than_columns_are_a_mistake():
    with pytest.raises(ValueError, match="2 cells for 1"):
        table("", "one").add_row("a", "b")
