"""The JSON schemas in docs/, made from the records: `python -m tilewright.results.schema docs`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from tilewright.files import atomic_write
from tilewright.results.catalogue import RECORDS
from tilewright.results.check import CheckRecord
from tilewright.results.comparison import ComparisonRecord
from tilewright.results.explain import ExplainRecord
from tilewright.results.page import ReportDocument

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OF_KERNELS = {"bench": "kernel bench", "grade": "kernel grade"}
# A comparison is made of two records and is none itself; the others have nothing to be compared.
DOCUMENTS: dict[str, tuple[str, type[msgspec.Struct]]] = {
    **{verb: (f"tilewright {OF_KERNELS.get(verb, verb)} --json", k) for verb, k in RECORDS.items()},
    "check": ("tilewright kernel check --json", CheckRecord),
    "explain": ("tilewright explain --json", ExplainRecord),
    "report": ("raw data of tilewright report", ReportDocument),
    "comparison": ("tilewright profile --compare A B --json", ComparisonRecord),
}


def schema(name: str) -> str:
    """The schema of what a verb writes, as it stands in docs/NAME.schema.json."""
    title, kind = DOCUMENTS[name]
    made = {"$schema": DIALECT, "title": title, **msgspec.json.schema(kind)}
    for part in made["$defs"].values():
        # Docstrings are wrapped for readers of the source.
        part["description"] = " ".join(part["description"].split())
    return json.dumps(made, indent=2) + "\n"


def main() -> None:
    folder = Path(*sys.argv[1:])
    for name in DOCUMENTS:
        with atomic_write(folder / f"{name}.schema.json") as file:
            file.write(schema(name).encode())


if __name__ == "__main__":
    main()
