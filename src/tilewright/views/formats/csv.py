"""Tables as CSV: all digits of every number, one unit a column, named in its heading.

Several tables follow each other with an empty line between them, each under a line with its title.
Sentences are left out.
"""

from __future__ import annotations

import csv
import io

from tilewright.views import plain
from tilewright.views.formats import Parts
from tilewright.views.table import Table

# A cell that begins so is a formula to a spreadsheet; names may come from strangers.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def document(parts: Parts) -> str:
    tables = [part for part in parts if isinstance(part, Table)]
    return "\n".join(_table(table, titled=len(tables) > 1) for table in tables)


def harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA) else cell


def _table(table: Table, titled: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    title = " ".join(table.title.split())
    if titled and title:
        writer.writerow([f"# {title}"])
    found = plain.columns(table)
    writer.writerow(harmless(f"{x.name} ({x.unit})" if x.unit else x.name) for x in found)
    for row in zip(*(x.values for x in found), strict=True):
        writer.writerow(harmless(cell) if isinstance(cell, str) else cell for cell in row)
    return text.getvalue()
