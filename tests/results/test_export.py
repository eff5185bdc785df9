from __future__ import annotations

import csv
import io
import json
import sys

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.results import made
from tilewright.errors import TilewrightError
from tilewright.results import export, schema

BOTH = [(1, made.run_record()), (2, made.ladder_record())]


def test_csv_has_a_row_for_everything_that_was_timed():
    rows = list(csv.DictReader(io.StringIO(export.export(BOTH, "csv").decode())))
    assert [(row["id"], row["verb"], row["timed"]) for row in rows] == [
        ("1", "run", "forward"), ("1", "run", "conv1"), ("2", "ladder", "serial"),
        ("2", "ladder", "fused"),
    ]  # fmt: skip
    serial = rows[2]
    samples = [float(each) for each in serial["seconds_an_image"].split()]
    assert samples == pytest.approx([each / 100 for each in made.TIMES])
    assert float(serial["low_seconds_an_image"]) <= float(serial["median_seconds_an_image"])
    assert rows[0]["low_seconds_an_image"] == ""


@given(st.lists(made.runs | made.ladders, max_size=3))
@examples(20)
def test_csv_can_be_read_whatever_names_there_are(records):
    numbered = list(enumerate(records, 1))
    rows = list(csv.DictReader(io.StringIO(export.export(numbered, "csv").decode(), newline="")))
    assert [(int(row["id"]), row["timed"], row["device_name"]) for row in rows] == [
        (number, name, record.device_name) for number, record in numbered for name in record.timings
    ]


def test_json_has_whole_records():
    document = json.loads(export.export(BOTH, "json"))
    for kept, verb in zip(document["records"], ("run", "ladder"), strict=True):
        kept.pop("id")
        jsonschema.validate(kept, json.loads(schema.schema(verb)))


def test_parquet_has_the_rows_of_the_csv():
    parquet = pytest.importorskip("pyarrow.parquet")
    made_table = parquet.read_table(io.BytesIO(export.export(BOTH, "parquet")))
    assert made_table.to_pylist() == list(export.rows(BOTH))
    empty = parquet.read_table(io.BytesIO(export.export([], "parquet")))
    assert empty.schema.equals(made_table.schema)


def test_without_pyarrow_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[parquet\]'"):
        export.export(BOTH, "parquet")
