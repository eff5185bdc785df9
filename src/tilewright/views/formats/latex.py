"""Tables as LaTeX, in the style of booktabs: each stands alone in any document."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from tilewright.terminal import printable
from tilewright.views.formats import Parts
from tilewright.views.table import Table
from tilewright.views.units import Quantity

HEAD = "% \\usepackage{booktabs} in the preamble"
ESCAPED = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "`": r"\`{}",
    "\"": "''",  # has no sign of its own in every encoding of fonts
    "µ": r"$\mu$", "μ": r"$\mu$", "×": r"$\times$", "±": r"$\pm$", "≈": r"$\approx$",
    "…": r"\ldots{}", "²": r"\textsuperscript{2}", "→": r"$\to$", "−": r"$-$", "√": r"$\surd$",
    "≤": r"$\leq$", "≥": r"$\geq$", "*": r"$\ast$", "·": r"$\cdot$",
}  # fmt: skip
MOST_KNOWN = 0x180  # beyond, letters need a package
DASHES = re.compile("-(?=-)")  # two in a row would be one long dash
THIN = r"\,"  # between a number and its unit


def document(parts: Parts) -> str:
    """The sentences are paragraphs before and after the tables."""
    texts = (_table(part) if isinstance(part, Table) else escape(part) for part in parts)
    return "\n\n".join((HEAD, *texts)) + "\n"


def escape(text: str) -> str:
    """Text that LaTeX prints as it is. What its usual fonts lack is named by its number."""
    return DASHES.sub("-{}", "".join(map(_character, printable(" ".join(text.split())))))


def _character(character: str) -> str:
    if character in ESCAPED:
        return ESCAPED[character]
    if character.isascii():
        return character
    # Letters with accents: LaTeX knows these in every encoding of its fonts.
    known = ord(character) < MOST_KNOWN and character.isalpha()
    if known and unicodedata.normalize("NFD", character)[0].isascii():
        return character
    return rf"\texttt{{U+{ord(character):04X}}}"


def _table(table: Table) -> str:
    aligned = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    title = escape(table.title)
    lines = [r"\begin{table}[htbp]", r"\centering"]
    lines += [rf"\caption{{{title}}}"] if title else []
    lines += [rf"\begin{{tabular}}{{@{{}}{aligned}@{{}}}}", r"\toprule"]
    if table.headed:
        lines += [_line(escape(column.name) for column in table.columns), r"\midrule"]
    for place, row in enumerate(table.rows):
        if place and place in table.rules:
            lines.append(r"\midrule")
        lines.append(_line(map(_cell, row)))
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"])


def _cell(cell: str) -> str:
    if isinstance(cell, Quantity):
        number, _, unit = cell.partition(" ")
        minus = number.startswith("-")
        shown = f"${escape(number)}$" if minus else escape(number)
        return f"{shown}{THIN}{escape(unit)}" if unit else shown
    return escape(cell)


def _line(cells: Iterable[str]) -> str:
    text = " & ".join(cells)
    # A bracket behind the end of the row before would be taken for the space between them.
    return f"{'{}' if text.startswith('[') else ''}{text} \\\\"
