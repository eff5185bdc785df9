"""A picture of what a command prints in a terminal, as SVG.

    python -m benchmarks.screenshot check.svg kernel check mine.cl --seed 1

runs `tilewright` with the words that follow the file, as in a terminal of 100 columns.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tilewright.files import atomic_write

WIDTH = 100
# Rich's own frame fetches a font from elsewhere when it is looked at; the reader's own will do.
FRAME = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g>
</g>
</svg>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("picture", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER, help="as after `tilewright`")
    given = parser.parse_args()
    with atomic_write(given.picture) as file:
        file.write(screenshot(given.command).encode())


def screenshot(command: list[str]) -> str:
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)}
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", *command],
        env=environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text.from_ansi(done.stdout.rstrip("\n")))
    title = " ".join(["tilewright", *command])
    # A name of its own for its styles, which would else be drawn from what is in it.
    return console.export_svg(title=title, code_format=FRAME, unique_id="terminal")


if __name__ == "__main__":
    main()
