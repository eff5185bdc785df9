from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.terminal import printable, say_once


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, ü, 漢, µs, ─", "plain, ü, 漢, µs, ─"), ("two\nlines\tand a tab", None),
        ("\x1b[2J", r"\x1b[2J"), ("\x1b]0;title\x07", r"\x1b]0;title\x07"), ("\r", r"\r"),
        ("\x9b2J", r"\x9b2J"), ("\x7f\0", r"\x7f\x00"), ("a\u202eb", r"a\u202eb"),
        ("\u2066\u200b\ufeff\u2028", r"\u2066\u200b\ufeff\u2028"), ("\udcff", r"\udcff"),
        ("\U000e0041", r"\U000e0041"), (r"C:\x1b", r"C:\x1b"),
    ],
)  # fmt: skip
def test_what_steers_is_spelled_out(text, shown):
    assert printable(text) == (text if shown is None else shown)


@given(st.text(st.characters(exclude_categories=[])))
def test_nothing_that_steers_is_left(text):
    shown = printable(text)
    for character in shown:
        assert (
            character in "\n\t"
            or unicodedata.category(character)[0] != "C"
            or (
                unicodedata.category(character) in ("Co", "Cn")  # means nothing to a terminal
            )
        )
    assert printable(shown) == shown


def test_a_notice_is_said_once(capsys):
    for _ in range(3):
        say_once("a notice with \x1b in it")
    assert capsys.readouterr().err == "tilewright: a notice with \\x1b in it\n"
