from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.errors import TilewrightError
from tilewright.model.formats import description, weights


def test_shipped_weights_come_with_their_network():
    for name in ("cifar10", "ece408"):
        network = tilewright.load(name)
        assert network.parameters.keys() == network.parameter_shapes.keys()
        assert float(network.notes["test_accuracy"]) > 0.76


def test_a_network_without_shipped_weights_loads_without_parameters():
    assert not tilewright.load("ece408-2017").parameters


def test_a_weight_file_can_stand_alone(tmp_path):
    network = tilewright.load("cifar10")
    path = tmp_path / "own.safetensors"
    weights.save(network, path)
    again = tilewright.load(path)
    assert again.layers == network.layers
    assert again.notes == network.notes
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(again.parameters[name], value)


def test_a_description_and_its_weights(tmp_path):
    network = tilewright.load("cifar10")
    path = tmp_path / "net.json"
    path.write_text(description.to_json(network))
    assert not tilewright.load(path).parameters
    assert tilewright.load(path, dict(network.parameters)).parameters
    assert tilewright.load(network).parameters


@pytest.mark.parametrize(
    ("net", "given", "words"),
    [
        ("cifar1O", None, "did you mean 'cifar10'?"),
        ("no/such.json", None, "cannot read no/such.json"),
        ("no/such", None, "network 'no/such' does not exist"),
        (".", None, "is a folder"),
        ("cifar10", "no.safetensors", "no.safetensors"),
        ("cifar10", "no/such", "weights 'no/such' does not exist"),
        ("cifar10", "pyproject.toml", "neither a .safetensors file nor a folder"),
        ("pyproject.toml", None, "neither a .json description nor"),
        ("cifar10", "tests", "no ConvNetJS snapshot"),
    ],
)
def test_bad_names_are_named(net, given, words, request, monkeypatch):
    monkeypatch.chdir(request.config.rootpath)
    with pytest.raises(TilewrightError) as error:
        tilewright.load(net, given)
    assert words in str(error.value)
