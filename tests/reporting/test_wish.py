"""What a report is about: images, and commands that can be typed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.test_docs import parser_of
from tilewright.data import catalogue
from tilewright.reporting import wish as wishes
from tilewright.reporting.wish import Wish, settled
from tilewright.runtime.device import CUDA


@pytest.mark.parametrize(
    ("verb", "more"),
    [
        ("ladder", {"images": 20}),
        ("run", {"label": "network fp16", "images": 20}),
        ("profile", {"label": "direct", "images": 20, "memory": "managed"}),
        ("explain", {"label": "tensor tf32"}),
    ],
)
def test_commands_have_all_that_a_figure_depends_on_and_can_be_typed(verb, more):
    wish = Wish("mine.json", Path("w w.safetensors"), "images.npz", 20, 5, CUDA, 7)
    program, said, *words = wish.command(verb, **more)
    assert (program, said) == ("tilewright", verb)
    parsed = vars(parser_of(verb).parse_args(words))
    assert (parsed["net"], parsed["batch"], str(parsed["device"])) == ("mine.json", 5, "cuda")
    label = more.get("label", "")
    if label:
        assert parsed["rung"] == label.partition(" ")[0]
        assert parsed["precision"] == (label.partition(" ")[2] or None)
    if verb != "explain":
        assert (parsed["data"], parsed["images"]) == ("images.npz", 20)
        assert str(parsed["weights"]) == "w w.safetensors"
        assert parsed["memory"] == more.get("memory")
    if verb == "ladder":
        assert parsed["repeats"] == 7


def test_no_more_images_than_there_are(tmp_path):
    path = tmp_path / "seven.npz"
    np.savez(path, images=np.zeros((7, 1, 70, 70), np.uint8))
    found = settled(Wish(data=str(path), images=100))
    assert (found.images, found.sizes) == (7, (7,))
    found = settled(Wish(data=str(path), images=5, milestone=True))
    assert (found.images, found.sizes) == (5, (5, 7))


def test_a_milestone_takes_the_whole_data_set_where_it_is(monkeypatch, tmp_path):
    monkeypatch.setattr(catalogue, "open_data", lambda data, shape: range(10_000))
    entry = catalogue.ENTRIES[wishes.WHOLE]
    for here, data in (([tmp_path], "fashion-mnist"), ([], "fashion-mnist-sample")):
        monkeypatch.setattr(type(entry), "locate", lambda self, kept, here=here: here)
        found = settled(Wish(milestone=True))
        assert (found.data, found.sizes) == (data, (100, 1000, 10_000))
    assert settled(Wish()).data == "fashion-mnist-sample"


def test_a_network_of_few_classes_gets_drawn_pictures(tmp_path):
    path = tmp_path / "two.json"
    layers = [{"type": "fully_connected", "outputs": 2}]
    path.write_text(json.dumps({"name": "two", "input": {"shape": [1, 4, 4]}, "layers": layers}))
    found = settled(Wish(str(path), images=300, milestone=True))
    assert (found.data, found.sizes) == ("drawn", (100, 300, 1000, 10_000))


def test_another_wish_has_other_parts():
    assert Wish().digest == Wish().digest != Wish(images=99).digest != Wish(milestone=True).digest
