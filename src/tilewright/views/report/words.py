"""The author's own words: a Markdown file beside the page, a heading for each place."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tilewright.errors import TilewrightError
from tilewright.files import check_file, reason
from tilewright.views.report.blocks import Section, Words

LARGEST = 2**20
HEAD = """<!-- Your own words. What stands below a heading comes to that place of the page when it
is made again; a place without words is left out. Tables, lists and links are Markdown's. -->
"""
PLACE = re.compile(r"# +(.+?) *$")
FENCE = re.compile(r" {0,3}(```|~~~)")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def read(path: Path) -> dict[str, str]:
    """Words by place; none where there is no such file."""
    if not path.exists():
        return {}
    check_file(path)
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise TilewrightError(f"{path} is longer than {LARGEST:,} bytes")
        return split(text.decode())
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise TilewrightError(f"{path} is not UTF-8: {error}") from error


def split(text: str) -> dict[str, str]:
    """Words by the heading above them; what looks like one inside of code is none."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    fence = ""
    for line in COMMENT.sub("", text).splitlines():
        if (mark := FENCE.match(line)) and fence in ("", mark[1]):
            fence = "" if fence else mark[1]
        heading = None if fence else PLACE.match(line)
        if heading:
            lines = found.setdefault(heading[1], [])
        else:
            lines.append(line)
    return {place: "\n".join(words).strip() for place, words in found.items()}


def places(sections: Iterable[Section]) -> list[str]:
    blocks = [block for section in sections for block in section.blocks]
    return [block.place for block in blocks if isinstance(block, Words)]


def start(sections: Iterable[Section]) -> str:
    """A file with every place and no words."""
    return HEAD + "".join(f"\n# {place}\n" for place in places(sections))
