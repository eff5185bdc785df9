"""The schemas in docs/ are what the types give, and say what every field means."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tilewright.results import schema
from tilewright.results.catalogue import RECORDS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", schema.DOCUMENTS)
def test_the_committed_schema_is_that_of_the_type(name):
    committed = (DOCS / f"{name}.schema.json").read_text()
    assert committed == schema.schema(name), "python -m tilewright.results.schema docs"
    jsonschema.Draft202012Validator.check_schema(json.loads(committed))


def test_no_schema_is_there_that_no_type_gives():
    names = {path.name.removesuffix(".schema.json") for path in DOCS.glob("*.schema.json")}
    assert names == set(schema.DOCUMENTS)


def test_what_fields_mean_is_kept():
    made = json.loads(schema.schema("profile"))["$defs"]
    assert made["RowRecord"]["properties"]["bytes"]["description"].startswith("moved by copies")
    assert "\n" not in "".join(part["description"] for part in made.values())
    assert "launch overhead" in made["WallParts"]["required"]


def test_it_is_written_where_it_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["schema", str(tmp_path)])
    schema.main()
    assert {path.name for path in tmp_path.iterdir()} == {
        f"{name}.schema.json" for name in schema.DOCUMENTS
    }


@pytest.mark.parametrize("verb", RECORDS)
def test_a_record_says_which_verb_made_it(verb):
    assert RECORDS[verb].schema_id().startswith(f"tilewright.{verb}/")
