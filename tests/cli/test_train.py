from __future__ import annotations

import json

import pytest

import tilewright
from tests.data.test_fashion_mnist import idx, write
from tilewright.cli import main

torch = pytest.importorskip("torch", reason="training needs PyTorch")
pytestmark = pytest.mark.xdist_group("torch")  # see tests/model/formats/test_modules.py


@pytest.fixture
def folder(tmp_path):
    """A small set that can be learnt: the label is which of ten rows is lit."""
    import numpy as np

    place = tmp_path / "data"
    place.mkdir()
    for part, count in (("train", 100), ("t10k", 40)):
        labels = np.arange(count) % 10
        images = np.zeros((count, 28, 28), np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[4 + 2 * label] = 255
        write(place, part=part, images=idx(images), labels=idx(labels.astype(np.uint8)))
    return place


def test_train_then_run(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "ece408-2017", "--data", str(folder), "--epochs", "2"]) == 0
    text = capsys.readouterr()
    assert "epoch   2: loss" in text.out + text.err
    assert "as stored (float16)" in text.out
    assert {path.name for path in tmp_path.iterdir()} == {"data", "ece408-2017.safetensors"}
    assert main(["run", "--net", "ece408-2017.safetensors", "--data", str(folder)]) == 0
    assert "ece408-2017 over 40 images" in capsys.readouterr().out


def test_a_stopped_training_goes_on(folder, tmp_path, monkeypatch, capsys):
    from tilewright.train import Training

    monkeypatch.chdir(tmp_path)
    arguments = ["train", "ece408-2017", "--data", str(folder), "--epochs", "2"]
    right = Training.run_epoch

    def stop_in_the_second(self, progress):
        if self.history:
            raise KeyboardInterrupt
        return right(self, progress)

    monkeypatch.setattr(Training, "run_epoch", stop_in_the_second)
    assert main(arguments) == 130
    assert "the same command goes on from there" in capsys.readouterr().out
    assert (tmp_path / "ece408-2017.safetensors.checkpoint").exists()
    assert not (tmp_path / "ece408-2017.safetensors").exists()
    monkeypatch.setattr(Training, "run_epoch", right)
    assert main(arguments) == 0
    assert "going on after epoch 1" in capsys.readouterr().out


def test_the_name_of_a_network_never_leads_to_another_folder(folder, tmp_path, monkeypatch, capsys):
    layers = [{"type": "fully_connected", "outputs": 10}, {"type": "softmax"}]
    net = {"name": "../../x", "input": {"shape": [1, 28, 28]}, "layers": layers}
    place = tmp_path / "a" / "b" / "c"
    place.mkdir(parents=True)
    monkeypatch.chdir(place)
    (place / "net.json").write_text(json.dumps(net))
    assert main(["train", "net.json", "--data", str(folder), "--epochs", "1"]) == 0
    assert {path.name for path in place.iterdir()} == {"net.json", "x.safetensors"}
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"b"}


def test_a_network_is_not_trained_over_itself(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tilewright.save(tilewright.load("ece408"), tmp_path / "ece408.safetensors")
    before = (tmp_path / "ece408.safetensors").read_bytes()
    assert main(["train", "ece408.safetensors", "--data", str(folder)]) == 2
    assert "choose another --output" in capsys.readouterr().err
    assert (tmp_path / "ece408.safetensors").read_bytes() == before
