from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.rungs.own.test_rung import needs_opencl
from tilewright.cli import main
from tilewright.errors import TilewrightError
from tilewright.model.formats import description
from tilewright.model.layers import Pixels, ReLU
from tilewright.model.network import Network


@pytest.mark.parametrize(
    ("net", "words"),
    [
        ("cifar10", ["16@5x5 pad 2", "20x4x4", "7.840", "22,466", "test accuracy 0.7"]),
        ("ece408", ["12@7x7 no bias", "24x26x26", "29.091", "2,612,310"]),
        ("ece408-2017", ["50@5x5 no bias", "tilewright train ece408-2017"]),
    ],
)
def test_the_layer_table(net, words, capsys):
    assert main(["show", net]) == 0
    text = capsys.readouterr().out
    for word in words:
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 100


def own_network(tmp_path, name, *layers):
    path = tmp_path / "own.json"
    net = {"name": name, "input": {"shape": [1, 4, 4]}, "layers": list(layers)}
    path.write_text(json.dumps(net))
    return str(path)


@pytest.mark.parametrize("name", ["lenet3", "ece408-2017"])
def test_advice_is_a_command_that_works(name, tmp_path, capsys):
    """`train` knows the zoo's names; another network of the same name is not the zoo's."""
    path = own_network(tmp_path, name, {"type": "fully_connected", "outputs": 2})
    assert main(["show", path]) == 0
    text = capsys.readouterr().out
    assert "--weights" in text
    assert f"train {name}" not in text
    np.savez(tmp_path / "x.npz", images=np.zeros((1, 1, 4, 4), np.uint8))
    assert main(["run", "--net", path, "--data", str(tmp_path / "x.npz")]) == 2
    text = capsys.readouterr().err
    assert "--weights" in text
    assert f"train {name}" not in text


def test_a_network_without_parameters_needs_none(tmp_path, capsys):
    assert main(["show", own_network(tmp_path, "flat", {"type": "flatten"})]) == 0
    assert "weights: none needed" in capsys.readouterr().out


def test_too_many_layers_are_refused_before_they_are_made(tmp_path, capsys, monkeypatch):
    path = own_network(tmp_path, "deep", *[{"type": "relu"}] * 5001)
    monkeypatch.setattr(description, "_layer", None)
    assert main(["show", path]) == 2
    assert "5,001 layers are more than the 5,000 that are taken" in capsys.readouterr().err
    with pytest.raises(TilewrightError, match="5,001 layers"):
        Network("deep", Pixels((1, 4, 4)), (ReLU(),) * 5001)
    assert len(Network("deep", Pixels((1, 4, 4)), (ReLU(),) * 5000).stages) == 5001


def test_what_a_rung_chooses_is_shown_below_the_layers(capsys):
    assert main(["show", "cifar10", "--rung", "fused"]) == 0
    text = capsys.readouterr().out
    assert "who computes what" in text and "input..softmax" in text and "vectors " in text
    assert max(map(len, text.splitlines())) <= 100


@needs_opencl
def test_so_is_what_the_header_of_a_kernel_file_offers(capsys):
    kernel = Path(__file__).parents[2] / "docs" / "kernels"
    for file in sorted(kernel.glob("*.cl")):
        assert main(["show", "ece408", "--rung", str(file), "--device", "opencl"]) == 0
    assert capsys.readouterr().out.count("memory plan resident") >= 4


def test_a_device_without_a_rung_is_one_line(capsys):
    assert main(["show", "cifar10", "--device", "opencl"]) == 2
    assert "name it with --rung" in capsys.readouterr().err
