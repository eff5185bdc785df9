"""What compiled code looks like, for machines of every kind."""

from __future__ import annotations

import re

MULTIPLY_ADDS = re.compile(r"\b(?:vfmadd\w+|fmla)\b")
# Vectors that are written to the stack, or read again from there.
STACK = re.compile(r"mm\d+.*%rsp|%rsp.*mm\d+|\bq\d+.*\bsp\b")


def blocks_of(function: str, text: str) -> list[str]:
    """The code of a function between its labels."""
    found = text.partition(f"\n{function}:")[2].partition(".Lfunc_end")[0]
    assert found, f"no {function} in this code"
    return re.split(r"\n(?=\.LBB)", found)
