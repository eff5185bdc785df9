"""Reports on terminals of any width: nothing is wider than it, and no number is cut."""

from __future__ import annotations

import io
import json
import re

import pytest
from msgspec import structs
from rich.cells import cell_len

from tests.profiling.made import profile
from tests.results import made
from tilewright.judge.check import Checked
from tilewright.truth.diagnose import Diagnosis
from tilewright.truth.diagnose.words import Reason
from tilewright.truth.evidence import Fault
from tilewright.truth.planted import Mistake
from tilewright.truth.verify import Verdict
from tilewright.views import check as check_view
from tilewright.views import console, units
from tilewright.views import ladder as ladder_view
from tilewright.views import planted as planted_view
from tilewright.views import profile as profile_view
from tilewright.views import run as run_view
from tilewright.views.formats import document
from tilewright.views.table import Table, table

RUNGS = {f"rung-of-a-long-name-{number}, per-layer": made.TIMES for number in range(12)}
REPORTS = {
    "run": lambda: run_view.report(made.run_record()),
    "ladder": lambda: ladder_view.report(made.ladder_record(RUNGS)),
    "profile": lambda: profile_view.report(profile(), from_start=True),
}


def shown(parts, width):
    screen = console.Screen(file=io.StringIO(), width=width, force_terminal=True, no_color=True,
                            color_system=None, highlight=False, markup=False)  # fmt: skip
    for part in parts:
        screen.print(part)
    return screen.file.getvalue()


@pytest.mark.parametrize("width", [60, 72, 100, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_everything_fits_and_all_numbers_of_kept_columns_are_whole(name, width):
    text = shown(REPORTS[name](), width)
    assert max(map(cell_len, text.splitlines())) <= width
    assert "…" not in text
    for part in REPORTS[name]():
        if isinstance(part, Table):
            spare = [column.spare for column in part.columns]
            numbers = (cell for row in part.rows for cell, s in zip(row, spare, strict=True)
                       if isinstance(cell, units.Quantity) and not s)  # fmt: skip
            assert all(cell in text for cell in numbers)


@pytest.mark.parametrize("name", REPORTS)
def test_every_table_of_a_file_has_a_title_and_numbers_in_plain_units(name):
    found = json.loads(document(REPORTS[name](), "json"))["tables"]
    assert len(found) > 1
    for each in found:
        assert each["title"]
        for column in each["columns"]:
            assert column["unit"] in ("", "s", "B", "%", "x")
            assert not column["name"].endswith((" ms", " MB"))
            if column["kind"] != "text":
                values = [row[column["name"]] for row in each["rows"]]
                assert all(value is None or isinstance(value, int | float) for value in values)


def test_a_terminal_is_used_up_to_200_columns_and_a_pipe_up_to_100(monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert console.output().width == console.WIDTH == 100
    monkeypatch.setattr("rich.console.Console.is_terminal", True)
    assert console.output().width == console.WIDEST == 200
    monkeypatch.setenv("COLUMNS", "20")
    assert console.output().width == console.NARROWEST == 60


@pytest.mark.parametrize("width", [60, 100, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_ends_between_a_number_and_its_unit(name, width):
    text = shown(REPORTS[name](), width)
    assert console.GLUE not in text
    assert not re.search(r"\d\n *(?:%|ms|µs|s|kB|MB|GFLOP/s|GB/s)\b", text)


def test_names_stay_beside_their_times_on_a_narrow_terminal():
    lines = shown(REPORTS["profile"](), 60).splitlines()
    for name in ("cuLaunchKernel", "direct_conv", "[memcpy HtoD]"):
        assert [line for line in lines if name in line and " ms " in line and "%" in line], name


def test_what_was_found_of_a_kernel_is_broken_to_the_terminal():
    reason = Reason("border", "wrong only at the border " * 9)
    found = Diagnosis("220 of 2,860 outputs are wrong", "image 0", (reason,), ("#" * 30,))
    checked = Checked("mine.cl", "mine", "an idea " * 20, "fp32", "wrong",
                      verdict=Verdict(1, 1, 1, 2.0, Fault("conv", "ones", "is 2")),
                      diagnosis=found)  # fmt: skip
    mistake = Mistake("border", "the border is not tested", ("conv",))
    outcome = planted_view.Outcome(mistake, (), checked.verdict, found)
    for width in (60, 100):
        lines = list(check_view.lines(checked, None, 1, width))
        assert width - 12 < max(map(len, lines)) <= width
        *said, _, _ = planted_view.report("shared", "opencl", [outcome], width)
        assert width - 12 < max(map(len, said)) <= width


def test_sentences_are_broken_where_the_terminal_ends_but_by_100_columns_at_most():
    words = "a sentence " * 30 + "of 95 % and 3.25 ms"
    for width, longest in ((60, 60), (100, 100), (200, 100)):
        lines = shown([words], width).splitlines()
        assert longest - 11 < max(map(cell_len, lines)) <= longest


def test_the_rest_of_a_broken_note_is_set_in_that_of_a_paragraph_is_not():
    words = "a sentence " * 20
    assert [line[:3] for line in shown([words, f"  {words}"], 100).splitlines()] == [
        "a s", "  s", "  s", "  a", "   ", "   ",
    ]  # fmt: skip
    assert "  " not in " ".join(line.strip() for line in shown([words * 3], 100).splitlines())
    assert [line[:1] for line in shown([f"\n{words}"], 100).splitlines()] == ["", "a", "s", "s"]


def test_what_holds_a_layer_up_is_said_on_narrow_terminals():
    run = structs.replace(made.run_record(), peak_flops=1e9)
    text = shown(run_view.report(run), 44)
    assert "what holds" in text
    assert "too narrow for: kind" in text


def test_a_device_that_took_longer_than_all_is_explained():
    row = made.rung_record("direct", made.TIMES)
    longer = structs.replace(row.network, median_seconds=2 * row.network.median_seconds)
    for device, said in ((longer, True), (row.network, False)):
        record = made.ladder_record(rows=(structs.replace(row, device_time=device),))
        assert ("turns of their own" in shown(ladder_view.report(record), 200)) is said


def test_a_bar_takes_no_room_from_names():
    rows = table("T", "name", "%share")
    rows.add_row("a-name-of-twenty-one", units.share(0.5))
    for width in range(28, 50):
        assert "a-name-of-twenty-one" in shown([rows], width)


def test_a_pipe_has_no_blanks_at_the_end_of_a_line(capsys):
    for part in REPORTS["run"]():
        console.output().print(part)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert not [line for line in lines if line != line.rstrip()]
    assert not [line for line in console.text(REPORTS["run"]()).splitlines() if line.endswith(" ")]


def test_without_colour_nothing_is_bold_either(monkeypatch):
    def printed():
        screen = console.Screen(file=io.StringIO(), width=100, force_terminal=True)
        for part in REPORTS["run"]():
            screen.print(part)
        return screen.file.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[1m" in printed()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in printed()
