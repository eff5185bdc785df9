"""Tables as JSON: columns with their units, rows by the columns' names, all digits."""

from __future__ import annotations

import json

from tilewright.views.formats import Parts
from tilewright.views.table import Table


def document(parts: Parts) -> str:
    tables = [part for part in parts if isinstance(part, Table)]
    notes = [part for part in parts if not isinstance(part, Table)]
    made = {"tables": [_table(table) for table in tables], "notes": notes}
    return json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _table(table: Table) -> dict[str, object]:
    names = [column.name for column in table.columns]
    return {
        "title": " ".join(table.title.split()),
        "columns": [
            {"name": column.name, "kind": column.kind, "unit": table.unit(place)}
            for place, column in enumerate(table.columns)
        ],
        "rows": [dict(zip(names, row, strict=True)) for row in table.values()],
    }
