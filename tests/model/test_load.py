from __future__ import annotations

import copy

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
        ("", None, "a network's name or path is empty; known: cifar10"),
        (" ", None, "name or path is empty"),
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


@pytest.mark.parametrize("given", [("model.pt",), ("cifar10", "weights.pth")])
def test_pickles_are_refused_with_the_way_that_is_safe(given):
    with pytest.raises(TilewrightError, match=r"a pickle may run any code .*\.from_torch"):
        tilewright.load(*given)


def test_keras_files_are_refused_with_the_way_that_is_read(tmp_path):
    path = tmp_path / "model.keras"
    path.write_bytes(b"PK")
    with pytest.raises(TilewrightError, match=r"model\.export\('model\.onnx', format='onnx'\)"):
        tilewright.load(path)


LENET = {
    "name": "lenet",
    "input": {"shape": (1, 28, 28), "scale": np.float32(0.5)},
    "layers": [
        {"type": "convolution", "filters": np.int64(6), "kernel": 5, "padding": (2, 2)},
        {"type": "leaky_relu"},
        {"type": "fully_connected", "outputs": 10},
    ],
}  # fmt: skip


def test_a_network_as_a_dict(tmp_path):
    network = tilewright.load(LENET)
    assert not network.parameters
    assert tilewright.load(description.from_json(description.to_json(network), "")).layers == (
        network.layers
    )
    weights = {name: np.ones(shape, "f4") for name, shape in network.parameter_shapes.items()}
    assert tilewright.load(LENET, weights).parameters


@pytest.mark.parametrize(
    "place, value, words",
    [
        (("name",), 3, "name must be up to 60 printable characters, not 3"),
        (("name",), "a\nb", r"printable characters, not 'a.nb'"),
        (("input", "shape"), float("nan"), "input shape must be a list, not nan"),
        (("input", "shape"), [1, 2, float("nan")], "input size must be a whole number"),
        (("input", "scale"), float("nan"), "input scale must be between"),
        (("input", "scale"), "x", "input scale must be a number, not 'x'"),
        (("layers",), {}, "layers must be a list"),
        (("layers", 1), "relu", "layer 2: needs an object"),
        (("layers", 1, "slope"), float("nan"), "layer 2: slope must be a number"),
        (("layers", 0, "filters"), "6", "layer 1: filters must be a whole number"),
        (("layers", 0, "filters"), 10**4000, "layer 1: filters must be a whole number"),
        (("layers", 0, "padding"), np.arange(2), r"layers\[0\].padding is of type ndarray"),
        (("layers", 0, 3), 4, r"layers\[0\] has a key that is no text: 3"),
        (("layers", 2), {"type": "fully_connected"}, "layer 3: fully_connected lacks .*'outputs'"),
        (("extra",), 1, "unknown key in the description 'extra'"),
        (("input",), None, "input must be an object"),
    ],
)
def test_a_dict_that_is_no_network_is_one_line_that_names_the_place(place, value, words):
    hostile = copy.deepcopy(LENET)
    inner = hostile
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(TilewrightError, match=f"^the network's description: .*{words}") as caught:
        tilewright.load(hostile)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_dict_that_holds_itself_or_lacks_something():
    endless = copy.deepcopy(LENET)
    endless["layers"].append(endless)
    with pytest.raises(TilewrightError, match="nested too deeply, or holds itself"):
        tilewright.load(endless)
    for key in LENET:
        with pytest.raises(TilewrightError, match=f"the description lacks '{key}'"):
            tilewright.load({name: LENET[name] for name in LENET if name != key})


@pytest.mark.parametrize("net", [None, 3, [], b"ece408"])
def test_what_is_neither_a_name_nor_a_network(net):
    with pytest.raises(TilewrightError, match="given by its name or path, as a Network or as a "):
        tilewright.load(net)
    with pytest.raises(TilewrightError, match="weights are given by their path or as a mapping"):
        tilewright.load("ece408", 3)
