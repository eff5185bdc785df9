from __future__ import annotations

import json
import sys
from dataclasses import replace
from xml.etree import ElementTree

import pytest
from benchmarks import picture

from tests.views.test_ladder import kept, made
from tilewright.results.document import plain


def document(ladder):
    """As `tilewright ladder --json` writes it, as far as a picture needs it."""
    return plain(kept(replace(ladder, device="a <CPU>")))


def test_it_takes_what_the_command_writes(tmp_path, monkeypatch):
    source, drawn = tmp_path / "ladder.json", tmp_path / "ladder.svg"
    source.write_text(json.dumps(document(made())))
    monkeypatch.setattr(sys, "argv", ["picture", str(source), str(drawn)])
    picture.main()
    root = ElementTree.fromstring(drawn.read_text())
    words = [each.text for each in root.iter() if each.text]
    assert "cifar10: time of all convolutions, 100 images, a <CPU>" in words
    assert "fused" in words


def test_it_takes_what_the_benchmark_writes():
    one = document(made())
    both = picture.picture({"networks": {"first": one, "second": one}})
    assert "first: time" in both
    assert "second: time" in both


def test_nothing_to_draw_is_said():
    nothing = document(made())
    for rung in nothing["rungs"]:
        rung["operations"] = {}
    with pytest.raises(SystemExit, match="nothing to draw"):
        picture.picture(nothing)
