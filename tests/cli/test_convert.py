from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tests.model.formats.graphs import model, saved
from tilewright.cli import main

RELU = [("Conv", "x,w", "c"), ("BatchNormalization", "c,bn1.weight,b,m,v", "y")]
ROW = np.ones(2)
CONSTANTS = {"w": np.ones((2, 3, 2, 2)), "bn1.weight": 2 * ROW, "b": ROW, "m": ROW, "v": ROW}


def same(a, b):
    assert a.layers == b.layers and a.input == b.input and a.sources == b.sources
    assert all(
        a.parameters[name].tobytes() == b.parameters[name].tobytes() for name in a.parameters
    )


def test_round_and_back(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = ["a.onnx", "b.safetensors", "c.json", "folder", "d.onnx"]
    for source, target in zip(["cifar10", *names], names, strict=False):
        weights = ["--weights", "c.safetensors"] if source == "c.json" else []
        assert main(["convert", source, target, *weights]) == 0
        same(tilewright.load("cifar10"), tilewright.load(
            target, "c.safetensors" if target == "c.json" else None
        ))  # fmt: skip
    assert "wrote folder/layer1_conv.txt" in capsys.readouterr().out


def test_how_floating_point_is_made_of_pixels_can_be_said(tmp_path, capsys):
    path = saved(model(RELU, ("n", 3, 5, 5), CONSTANTS), tmp_path)
    made = tmp_path / "made.safetensors"
    given = ["--input-scale", "1/127.5,2,0.5", "--input-shift=-1"]
    assert main(["convert", str(path), str(made), *given]) == 0
    pixels = tilewright.load(made).input
    assert pixels.scale == (1 / 127.5, 2, 0.5) and pixels.shift == -1
    assert main(["convert", str(made), str(tmp_path / "b.onnx"), *given]) == 2
    assert "says how pixels enter it" in capsys.readouterr().err
    assert not (tmp_path / "b.onnx").exists()


def test_show_says_what_was_folded_and_how_pixels_enter(tmp_path, capsys):
    assert main(["show", str(saved(model(RELU, ("n", 3, 5, 5), CONSTANTS), tmp_path))]) == 0
    text = capsys.readouterr().out
    assert "folded: bn1" in text and "value / 255" in text
    assert "weights: from model.onnx" in text


def test_what_is_not_understood_is_a_line_each(tmp_path, capsys):
    nodes = [("Sinh", "x", "a"), ("Sinh", "a", "y")]
    path = saved(model(nodes, ("n", 3, 5, 5)), tmp_path)
    assert main(["show", str(path)]) == 2
    first, *others = capsys.readouterr().err.splitlines()
    assert first == f"tilewright: {path}: 2 things are not understood:"
    assert [line.split()[:2] for line in others] == [["n0_Sinh", "(Sinh):"], ["n1_Sinh", "(Sinh):"]]


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        ("cifar10", "a.txt", "must end in .onnx"),
        ("cifar10", "no/such/a.onnx", "cannot write"),
        ("cifar10", ".", "it is there already"),
        ("ece408-2017", "a.onnx", "no weights to save"),
        ("ece408-2017", "folder", "no weights to save"),
        ("no.onnx", "a.onnx", "cannot read no.onnx"),
        ("model.pth", "a.onnx", "tilewright.from_torch"),
        ("model.pkl", "a.onnx", "a pickle may run any code"),
    ],
)
def test_what_cannot_be_written_is_said(source, target, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["convert", source, target]) == 2
    assert words in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
