"""Tables as GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tilewright.terminal import printable
from tilewright.views.formats import Parts
from tilewright.views.table import Table

# What would start markup, or HTML, or end a cell.
SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def document(parts: Parts) -> str:
    texts = (_table(part) if isinstance(part, Table) else escape(part) for part in parts)
    return "\n\n".join(texts) + "\n"


def escape(text: str) -> str:
    return SPECIAL.sub(r"\\\1", printable(" ".join(text.split())))


def _table(table: Table) -> str:
    names = [column.name if table.headed else "" for column in table.columns]
    aligned = ["---" if column.kind == "text" else "--:" for column in table.columns]
    lines = [] if not table.title.strip() else [f"**{escape(table.title)}**", ""]
    lines += [_line(map(escape, names)), _line(aligned)]
    lines += [_line(_cells(table, place, row)) for place, row in enumerate(table.rows)]
    return "\n".join(lines)


def _cells(table: Table, place: int, row: Sequence[str]) -> Iterable[str]:
    """Rows under the last rule are sums: Markdown has no rule to set them off, so they are bold."""
    bold = bool(table.rules) and place >= max(table.rules)
    return (f"**{escape(cell)}**" if bold and cell.strip() else escape(cell) for cell in row)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
