"""Text on its way to a terminal: what would steer it, or hide or turn text, is shown instead."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache

# Control, format (turns the direction of text, has no width), lone surrogate, line and paragraph.
STEERING = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def printable(text: str) -> str:
    """The text with `\\x1b` and the like spelled out; lines and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if character not in "\n\t" and unicodedata.category(character) in STEERING
        else character
        for character in text
    )


@cache
def say_once(line: str) -> None:
    """What a user should know although the command goes on, on standard error, once a process."""
    print(f"tilewright: {printable(line)}", file=sys.stderr)
