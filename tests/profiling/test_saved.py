from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given

from tests.examples import examples
from tests.profiling.made import CEILINGS, profile, profiles
from tilewright.errors import TilewrightError
from tilewright.profiling import saved
from tilewright.results import document
from tilewright.results.profile import ProfileRecord

# Made once: `jsonschema.validate` would look at the schema itself each time.
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "docs" / "profile.schema.json").read_text("utf-8"))
)


@given(profiles)
def test_what_is_saved_comes_back(drawn):
    text = document.text(saved.record(drawn))
    assert saved.profile_of(document.decode(text, ProfileRecord)) == drawn


@given(profiles)
@examples(25)
def test_it_follows_the_schema(drawn):
    SCHEMA.validate(json.loads(document.text(saved.record(drawn))))


def test_rows_have_what_programs_ask_for():
    made = json.loads(document.text(saved.record(profile())))
    for row in made["rows"]:
        wanted = {"name", "kind", "calls", "seconds", "average", "minimum", "maximum", "bytes"}
        assert wanted <= set(row)
    kernel = next(row for row in made["rows"] if row["name"] == "direct_conv")
    assert (kernel["calls"], kernel["layers"]) == (2, ["conv1"])
    assert kernel["shapes"] == [{"grid": [64, 1, 2], "block": [16, 16, 1]}]
    assert made["slow_down"] == pytest.approx(0.030 / 0.021)
    assert made["roofline"][0]["limit"]


def test_csv_has_the_same_rows():
    rows = list(csv.DictReader(io.StringIO(saved.to_csv(profile()))))
    found = {row["name"]: row for row in rows}
    assert found["[memcpy HtoD]"]["bytes"] == "6144"
    assert found["direct_conv"]["calls"] == "2"
    assert len(rows) == len(saved.record(profile()).rows)


def written(path, change):
    made = json.loads(document.text(saved.record(profile())))
    change(made)
    path.write_text(json.dumps(made))
    return path


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.pop("rung"), "missing required field `rung`"),
        (lambda d: d.update(device="gpu"), "unknown device 'gpu'"),
        (lambda d: d.update(images=-1), ">= 0 - at `\\$.images`"),
        (lambda d: d.update(images="many"), "got `str` - at `\\$.images`"),
        (
            lambda d: d["wall_parts"].pop("idle"),
            "missing required field `idle` - at `\\$.wall_parts`",
        ),
        (lambda d: d["detail"][0].update(seconds=math.inf), "not JSON"),
        (lambda d: d["detail"][0].update(seconds=-1.5), ">= 0.0 - at `\\$.detail"),
        (lambda d: d.update(wall_seconds=1.7e308), "<= 1000000000.0 - at `\\$.wall_seconds"),
        (lambda d: d.update(timed_seconds=[10**400]), "out of range - at `\\$.timed_seconds"),
        (lambda d: d["ceilings"].update(flops=-1), ">= 0.0 - at `\\$.ceilings.flops"),
        (lambda d: d.update(accuracy=1.5), "<= 1.0 - at `\\$.accuracy"),
        (lambda d: d["detail"][0].update(layers="conv1"), "Expected `array`, got `str`"),
        (lambda d: d["detail"][0].update(name="half \ud83d"), "not JSON"),
        (lambda d: d["detail"][0].update(kind="elephant"), "Invalid enum value 'elephant'"),
        (lambda d: d["detail"][0].update(calls=0), ">= 1 - at `\\$.detail\\[0\\].calls`"),
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
    for deep in ("[", '{"schema":', '{"other":'):
        (tmp_path / "b.json").write_text(100_000 * deep)
        with pytest.raises(TilewrightError, match=r"not a profile|not JSON"):
            saved.read(tmp_path / "b.json")
    with pytest.raises(TilewrightError, match="No such file"):
        saved.read(tmp_path / "c.json")
    assert saved.read(written(tmp_path / "d.json", lambda document: None)) == profile()


def test_a_ceiling_that_is_hardly_more_than_nothing_is_no_ceiling():
    """The share of it was infinite, which JSON cannot say."""
    made = saved.record(profile(ceilings=replace(CEILINGS, bytes=5e-324)))
    assert {each.share_of_bandwidth for each in made.roofline} == {None}
    assert "Infinity" not in document.text(made)


def test_a_file_of_any_size_is_not_read_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(document, "LARGEST_FILE", 1000)
    with pytest.raises(TilewrightError, match=r"large\.json is too large for a saved profile"):
        saved.read(written(tmp_path / "large.json", lambda made: None))
