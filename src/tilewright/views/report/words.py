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
PLACE = re.compile(r"^# +([^\n]+?) *$", re.MULTILINE)
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
        pieces = PLACE.split(COMMENT.sub("", text.decode()))
    except OSError as error:
        raise TilewrightError(f"cannot read {path}: {reason(error)}") from error
    except UnicodeDecodeError as error:
        raise TilewrightError(f"{path} is not UTF-8: {error}") from error
    return {place: words.strip() for place, words in zip(pieces[1::2], pieces[2::2], strict=True)}


def start(sections: Iterable[Section]) -> str:
    """A file with every place and no words."""
    places = [
        each.place for section in sections for each in section.blocks if isinstance(each, Words)
    ]
    return HEAD + "".join(f"\n# {place}\n" for place in places)
