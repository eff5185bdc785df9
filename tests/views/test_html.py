from __future__ import annotations

from tilewright.views.html import fragment
from tilewright.views.table import table


def test_names_do_nothing_but_show_themselves():
    rows = table("<i>\x1b[31m", "<u>", ">\nn")
    rows.add_row("<script>alert(1)</script>", "&")
    rows.add_section()
    rows.add_row("total", "1")
    page = fragment(["a < b\n", "", rows, "\x07"])
    assert "<script" not in page and "<i>" not in page and "<u>" not in page
    for shown in ("a &lt; b", "&lt;script&gt;", "&lt;i&gt;\\x1b[31m", "&amp;", "\\x07"):
        assert shown in page, shown
    assert "\x1b" not in page and "\x07" not in page


def test_numbers_stand_to_the_right_and_sections_have_a_line():
    rows = table("", "name", ">n")
    rows.add_row("a", "1")
    rows.add_section()
    rows.add_row("total", "1")
    page = fragment([rows])
    assert page.count("text-align: right") == 3
    assert page.count("border-top") == 2  # below the heading, above the total
    rows.headed = False
    assert "<th" not in fragment([rows])
