from __future__ import annotations

import csv
import json

import jsonschema
import numpy as np
import pytest

from tilewright.cli import main


@pytest.fixture
def schema(request):
    return json.loads((request.config.rootpath / "docs" / "run.schema.json").read_text())


def test_with_no_arguments_it_does_the_main_job(capsys):
    assert main(["run"]) == 0
    text = capsys.readouterr().out
    for words in (
        "ece408 over 1,000 images", "rung fused on cpu", "load data", "create network",
        "load parameters", "create outputs", "forward", "accuracy", "total", "conv1", "in conv1",
        "softmax", "remainder", "By kind", "Op time", "Correctness", "images/s", "Peak memory",
    ):  # fmt: skip
        assert words in text, words
    assert max(map(len, text.splitlines())) <= 100


def test_the_thesis_command(thesis_weights, thesis_images, capsys, schema):
    arguments = ["--weights", str(thesis_weights), "--data", str(thesis_images)]
    assert main(["run", "--net", "cifar10", *arguments, "--images", "1200", "--json", "-"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema)
    assert document["accuracy"] == 0.7825
    assert document["network"] == "cifar10"
    assert document["rung"] == "fused"
    total = sum(layer["seconds"] for layer in document["layers"])
    assert total + document["remainder_seconds"] == pytest.approx(document["forward_seconds"])


@pytest.mark.parametrize("rung", ["onnxruntime", "torch", "threads"])
def test_json_follows_the_schema_on_any_rung(rung, tmp_path, capsys, schema):
    pytest.importorskip(rung if rung != "threads" else "numba")
    out = tmp_path / "run.json"
    arguments = ["--rung", rung, "--images", "5", "--batch", "2", "--json", str(out)]
    assert main(["run", *arguments]) == 0
    document = json.loads(out.read_text())
    jsonschema.validate(document, schema)
    assert document["images"] == 5
    assert document["environment"]["command"] == ["tilewright", "run", *arguments]
    assert "Correctness" in capsys.readouterr().out


def test_predictions(tmp_path):
    out = tmp_path / "p.csv"
    assert main(["run", "--images", "20", "--predictions", str(out)]) == 0
    rows = list(csv.DictReader(out.open()))
    assert [int(row["index"]) for row in rows] == list(range(20))
    assert sum(row["label"] == row["predicted"] for row in rows) >= 15
    assert all(0.1 <= float(row["probability"]) <= 1 for row in rows)


def test_image_by_image_gives_the_same_predictions(tmp_path):
    for batch in ("1", "100"):
        out = tmp_path / f"{batch}.csv"
        arguments = ["--images", "30", "--batch", batch, "--predictions", str(out)]
        assert main(["run", *arguments]) == 0
    columns = [
        [row["predicted"] for row in csv.DictReader((tmp_path / f"{batch}.csv").open())]
        for batch in ("1", "100")
    ]
    assert columns[0] == columns[1]


def test_a_network_of_ones_own(tmp_path, capsys):
    """A .json description with a .safetensors, then the latter alone."""
    from tilewright.model.formats import weights
    from tilewright.model.formats.description import read
    from tilewright.truth.trials import random_parameters

    net = tmp_path / "tiny.json"
    net.write_text(
        json.dumps(
            {
                "name": "tiny",
                "input": {"shape": [1, 28, 28]},
                "layers": [
                    {"type": "convolution", "filters": 3, "kernel": [3, 5], "stride": 2},
                    {"type": "tanh"},
                    {"type": "average_pool", "size": 3, "stride": 2},
                    {"type": "fully_connected", "outputs": 10, "bias": False},
                ],
            }
        )
    )
    network = read(net)
    trained = network.with_parameters(random_parameters(network, np.random.default_rng(0)))
    file = tmp_path / "tiny.safetensors"
    weights.save(trained, file)
    for net_option in (["--net", str(net), "--weights", str(file)], ["--net", str(file)]):
        assert main(["run", *net_option, "--images", "10"]) == 0
        assert "tiny over 10 images" in capsys.readouterr().out


def test_pictures_are_not_mixed_into_other_formats(capsys):
    assert main(["run", "--images", "2", "--show", "1", "--format", "json"]) == 2
    assert "--show draws pictures, which --format json has not" in capsys.readouterr().err
