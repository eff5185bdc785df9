"""What is printed, as a piece of HTML for notebooks: nothing but itself is needed to show it."""

from __future__ import annotations

import html
from collections.abc import Iterable

from rich.console import RenderableType

from tilewright.terminal import printable
from tilewright.views import console
from tilewright.views.table import Column, Table

# Beside the page's own style, whatever that is: light or dark, narrow or wide.
TEXT = "white-space: pre-wrap; margin: 0.3em 0"
GRID = "border-collapse: collapse; margin: 0.3em 0"
CAPTION = "text-align: left; font-weight: bold"
CELL = "padding: 0.1em 0.8em 0.1em 0"
LINE = "border-top: 1px solid currentColor"


def fragment(parts: Iterable[RenderableType]) -> str:
    """Lines and tables, one below the other."""
    shown = [_table(part) if isinstance(part, Table) else _lines(part) for part in parts]
    return f"<div>{''.join(shown)}</div>"


def _lines(part: RenderableType) -> str:
    text = (part if isinstance(part, str) else console.text([part])).strip("\n")
    return f'<pre style="{TEXT}">{_escaped(text)}</pre>' if text else ""


def _table(table: Table) -> str:
    made = [f'<table style="{GRID}">']
    if table.title and table.headed:
        made.append(f'<caption style="{CAPTION}">{_escaped(table.title)}</caption>')
    if table.headed:
        heads = "".join(_cell("th", column, column.shown) for column in table.columns)
        made.append(f"<thead><tr>{heads}</tr></thead>")
    rules = table.rules | ({0} if table.headed else set())
    made.append("<tbody>")
    for index, row in enumerate(table.rows):
        style = f' style="{LINE}"' if index in rules else ""
        shown = (_cell("td", *pair) for pair in zip(table.columns, row, strict=True))
        made.append(f"<tr{style}>{''.join(shown)}</tr>")
    made.append("</tbody></table>")
    return "".join(made)


def _cell(tag: str, column: Column, content: str) -> str:
    side = "left" if column.kind == "text" else "right"
    text = _escaped(content.strip("\n")).replace("\n", "<br>")
    return f'<{tag} style="{CELL}; text-align: {side}">{text}</{tag}>'


def _escaped(text: str) -> str:
    """Names come from files: whatever stands in them is shown, and does nothing."""
    return html.escape("\n".join(map(printable, text.split("\n"))))
