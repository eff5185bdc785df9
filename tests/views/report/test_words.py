"""The author's own words, by the places of a page."""

from __future__ import annotations

import pytest

from tests.views.report.made import everything
from tilewright.errors import TilewrightError
from tilewright.views.report import words
from tilewright.views.report.material import Material
from tilewright.views.report.page import page


def test_a_file_to_start_with_has_every_place_and_no_words(tmp_path):
    sections = page(Material(everything()), as_milestone=True).sections
    path = tmp_path / "a.words.md"
    path.write_text(words.start(sections))
    found = words.read(path)
    assert list(found) == words.places(sections)
    assert {"small tricks", "who did what", "references", "shared"} <= set(found)
    assert not any(found.values())


@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_a_line_of_code_is_no_heading(fence):
    text = f"# shared\n\nRun:\n\n{fence}sh\n# twice\nmake run\n{fence}\n\n# ladder\nUp.\n"
    found = words.split(text)
    assert list(found) == ["shared", "ladder"]
    assert "# twice\nmake run" in found["shared"]


def test_comments_and_smaller_headings():
    found = words.split("<!-- # hidden -->\n# a b \n## Smaller\nText.\n")
    assert found == {"a b": "## Smaller\nText."}


def test_none_without_a_file_and_a_line_for_what_is_no_text(tmp_path):
    assert words.read(tmp_path / "none.md") == {}
    path = tmp_path / "bytes.md"
    path.write_bytes(b"# a\n\xff")
    with pytest.raises(TilewrightError, match="is not UTF-8"):
        words.read(path)
    path.write_bytes(b"a" * (words.LARGEST + 1))
    with pytest.raises(TilewrightError, match="longer than"):
        words.read(path)
