from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings

from tests.profile.made import profile, profiles
from tilewright.errors import TilewrightError
from tilewright.profile import saved

SCHEMA = json.loads(
    (Path(__file__).parents[2] / "docs" / "profile.schema.json").read_text(encoding="utf-8")
)


@given(profiles)
def test_what_is_saved_comes_back(drawn):
    text = json.dumps(saved.to_json(drawn), allow_nan=False)
    assert saved.from_json(json.loads(text)) == drawn


@given(profiles)
@settings(max_examples=25)
def test_it_follows_the_schema(drawn):
    jsonschema.validate(json.loads(json.dumps(saved.to_json(drawn))), SCHEMA)


def test_rows_have_what_programs_ask_for():
    document = saved.to_json(profile())
    for row in document["rows"]:
        wanted = {"name", "kind", "calls", "seconds", "average", "minimum", "maximum", "bytes"}
        assert wanted <= set(row)
    kernel = next(row for row in document["rows"] if row["name"] == "direct_conv")
    assert (kernel["calls"], kernel["layers"]) == (2, ["conv1"])
    assert kernel["shapes"] == [{"grid": [64, 1, 2], "block": [16, 16, 1]}]
    assert document["slow_down"] == pytest.approx(0.030 / 0.021)
    assert document["roofline"][0]["limit"]


def test_csv_has_the_same_rows():
    rows = list(csv.DictReader(io.StringIO(saved.to_csv(profile()))))
    found = {row["name"]: row for row in rows}
    assert found["[memcpy HtoD]"]["bytes"] == "6144"
    assert found["direct_conv"]["calls"] == "2"
    assert len(rows) == len(saved.to_json(profile())["rows"])


def written(path, change):
    document = json.loads(json.dumps(saved.to_json(profile())))
    change(document)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("rung"), "lacks 'rung'"),
        (lambda d: d.update(device="gpu"), "unknown device 'gpu'"),
        (lambda d: d.update(images=-1), "-1 is not a whole number"),
        (lambda d: d.update(images="many"), "'many' is not a whole number"),
        (lambda d: d["wall_parts"].pop("idle"), "lacks 'idle'"),
        (lambda d: d["detail"][0].update(seconds=math.inf), "inf is not a number"),
        (lambda d: d["detail"][0].update(seconds=-1.5), "-1.5 is not a number from 0"),
        (lambda d: d.update(wall_seconds=1.7e308), "not a number from 0 to 1e"),
        (lambda d: d.update(timed_seconds=[10**400]), "that is not a number"),
        (lambda d: d["ceilings"].update(flops=-1), "-1 is not a number"),
        (lambda d: d.update(accuracy=1.5), "1.5 is not a number from 0 to 1"),
        (lambda d: d["detail"][0].update(layers="conv1"), "'conv1' is not a list"),
        (lambda d: d["detail"][0].update(name="half \ud83d"), "broken profile"),
        (lambda d: d["detail"][0].update(kind="elephant"), "no row can be 'elephant'"),
        (lambda d: d["detail"][0].update(calls=0), "of 0 calls"),
        (lambda d: d.update(detail=7), "broken profile"),
        (lambda d: d.update(ceilings=[]), "broken profile"),
        (lambda d: d.update(schema="tilewright.run/1"), "not a profile saved by"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, change, words):
    with pytest.raises(TilewrightError, match=words) as caught:
        saved.read(written(tmp_path / "broken.json", change))
    assert "broken.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_no_profile_at_all(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(TilewrightError, match="not JSON"):
        saved.read(tmp_path / "a.json")
    (tmp_path / "b.json").write_text("[" * 100_000)
    with pytest.raises(TilewrightError, match="not JSON"):
        saved.read(tmp_path / "b.json")
    with pytest.raises(TilewrightError, match="No such file"):
        saved.read(tmp_path / "c.json")
    assert saved.read(written(tmp_path / "d.json", lambda document: None)) == profile()
