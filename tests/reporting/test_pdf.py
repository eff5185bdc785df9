"""A page as PDF."""

from __future__ import annotations

import re
import shutil

import pytest

from tilewright.errors import TilewrightError
from tilewright.reporting import pdf


def test_without_a_browser_it_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(TilewrightError, match="apt install chromium"):
        pdf.browser()


def test_a_browser_that_prints_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(pdf, "browser", lambda: "/bin/false")
    with pytest.raises(TilewrightError, match="could not print the page: exit code 1"):
        pdf.to_pdf("<p>")


@pytest.mark.skipif(not any(map(shutil.which, pdf.BROWSERS)), reason="Chromium is not installed")
@pytest.mark.xdist_group("browser")
def test_what_scripts_draw_is_printed():
    """Before it is printed, and behind the address's #all."""
    made = pdf.to_pdf(
        "<title>before</title><script>addEventListener('beforeprint', () => {"
        "document.title = 'printed' + location.hash.slice(1);"
        "for (let i = 0; i < 3; i++) document.body.insertAdjacentHTML('beforeend',"
        "'<p style=\"break-before: page\">page</p>') })</script><body><p>first</p>"
    )
    assert made.startswith(b"%PDF-")
    assert b"printedall" in made
    assert len(re.findall(rb"/Type /Page\b", made)) == 4
