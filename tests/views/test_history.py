"""Whatever was kept can be shown, within 100 columns."""

from __future__ import annotations

from hypothesis import Phase, given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.examples import examples
from tests.profiling.made import profile
from tests.results import made
from tilewright.profiling import saved
from tilewright.results.changes import compare
from tilewright.results.history import History
from tilewright.views import history as view
from tilewright.views.console import output


def printed(parts, capsys):
    screen = output()
    for part in parts:
        screen.print(part)
    text = capsys.readouterr().out
    assert max(map(cell_len, text.split("\n"))) <= 100
    return text


def test_every_record_can_be_shown_listed_and_compared(capsys, tmp_path):
    history = History(tmp_path / "h.sqlite")

    @given(st.tuples(made.runs, made.runs) | st.tuples(made.ladders, made.ladders))
    @examples(12, phases=[Phase.generate])
    def check(records):
        number, _ = map(history.add, records)
        kept = history.read(number)
        assert printed(view.report(number, kept), capsys).startswith(f"{number}: ")
        assert "how many times as fast" in printed(view.changes((1, 2), compare(*records)), capsys)
        printed([view.entries(history.entries())], capsys)

    check()


def test_a_kind_without_tables_has_what_was_timed(capsys):
    text = printed(view.report(1, saved.record(profile())), capsys)
    assert "profile of small on cuda (a GPU)" in text
    assert "network        3   10.5 ms" in text
