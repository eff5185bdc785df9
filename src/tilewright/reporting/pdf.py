"""A page as PDF, printed by Chromium: the browser that draws its charts anyway."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tilewright.errors import TilewrightError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = (
    f"a PDF needs Chromium or Chrome, and there is none of {', '.join(BROWSERS)} on the PATH: "
    "install it (Debian: apt install chromium), or print the .html from a browser"
)
# Charts are drawn by scripts: their time goes on as fast as they do.
VIRTUAL_MILLISECONDS = 60_000
LONGEST_SECONDS = 300


def browser() -> str:
    """The program, or an error that says how to get it."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise TilewrightError(MISSING)


def to_pdf(html: str) -> bytes:
    program = browser()
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        page, printed = Path(folder, "page.html"), Path(folder, "page.pdf")
        page.write_text(html, encoding="utf-8")
        command = [
            program, "--headless=new", "--disable-gpu", "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile", f"--print-to-pdf={printed}",
            f"--virtual-time-budget={VIRTUAL_MILLISECONDS}",
            # Its sandbox refuses root; the page is our own, and asks for nothing.
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"{page.as_uri()}#all",
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=LONGEST_SECONDS,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise TilewrightError(f"{program} could not print the page: {error}") from error
        if not printed.is_file():
            said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
            raise TilewrightError(f"{program} could not print the page: {said[0]}")
        return printed.read_bytes()
