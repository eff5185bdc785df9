"""Tables as JSON: columns with their units, rows by the columns' names, all digits."""

from __future__ import annotations

import json

from tilewright.views import plain
from tilewright.views.formats import Parts
from tilewright.views.table import Table


def document(parts: Parts) -> str:
    tables = [part for part in parts if isinstance(part, Table)]
    notes = [part for part in parts if not isinstance(part, Table)]
    made = {"tables": [_table(table) for table in tables], "notes": notes}
    return json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _table(table: Table) -> dict[str, object]:
    found = plain.columns(table)
    names = [f"{x.name} ({x.unit})" if x.unit else x.name for x in found]
    rows = zip(*(x.values for x in found), strict=True)
    return {
        "title": " ".join(table.title.split()),
        "columns": [
            {"name": name, "kind": x.kind, "unit": x.unit}
            for name, x in zip(names, found, strict=True)
        ],
        "rows": [dict(zip(names, row, strict=True)) for row in rows],
    }
