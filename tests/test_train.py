from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tilewright.data.dataset import Dataset
from tilewright.errors import TilewrightError
from tilewright.model.layers import (
    Add,
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    Softmax,
)
from tilewright.model.load import load
from tilewright.model.network import Network
from tilewright.runtime.device import CPU

torch = pytest.importorskip("torch", reason="training needs PyTorch")

from tilewright.train import Recipe, Training  # noqa: E402

pytestmark = pytest.mark.xdist_group("torch")  # see tests/model/formats/test_modules.py
NETWORK = Network(
    "tiny",
    Pixels((1, 8, 8)),
    (Convolution(4, 3, padding=1), ReLU(), MaxPool(2), FullyConnected(2), Softmax()),
)
RECIPE = Recipe(epochs=3, batch=16, learning_rate=1e-2, weight_decay=0.01, shift=1)


def pictures(count):
    """Class 0 is dark, class 1 is bright."""
    generator = np.random.default_rng(count)
    labels = np.arange(count) % 2
    images = generator.integers(0, 100, (count, 1, 8, 8)) + 150 * labels[:, None, None, None]
    return Dataset("made", images.astype(np.uint8), labels, "made")


def training(folder, seed=1, recipe=RECIPE, network=NETWORK):
    return Training(
        network, pictures(96), pictures(32), recipe, seed, CPU, folder / "w.safetensors"
    )


def trained(folder, **settings):
    job = training(folder, **settings)
    while len(job.history) < RECIPE.epochs:
        job.run_epoch()
    return job.finish()


def test_it_learns_and_stores_what_it_tested(tmp_path):
    network, accuracy = trained(tmp_path)
    assert accuracy > 0.9
    stored = load(tmp_path / "w.safetensors")
    assert stored.notes["test_accuracy"] == f"{accuracy:.4f}"
    for name, value in network.parameters.items():
        np.testing.assert_array_equal(stored.parameters[name], value)
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_the_seed_decides(tmp_path):
    first, second, other = (trained(tmp_path, seed=seed)[0].parameters for seed in (1, 1, 2))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


def test_resumed_is_the_same_as_never_stopped(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    whole, _ = trained(tmp_path / "a")
    training(tmp_path / "b").run_epoch()
    again = training(tmp_path / "b")
    assert again.resume()
    assert len(again.history) == 1
    again.run_epoch()
    again.run_epoch()
    resumed, _ = again.finish()
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], value)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    training(tmp_path).run_epoch()
    with pytest.raises(TilewrightError, match="other settings"):
        training(tmp_path, seed=2).resume()
    with pytest.raises(TilewrightError, match="other settings"):
        training(tmp_path, recipe=replace(RECIPE, epochs=9)).resume()


def test_a_checkpoint_of_other_images_is_refused(tmp_path):
    training(tmp_path).run_epoch()
    other = Training(
        NETWORK, pictures(98), pictures(32), RECIPE, 1, CPU, tmp_path / "w.safetensors"
    )
    with pytest.raises(TilewrightError, match="other settings or data"):
        other.resume()


def test_a_checkpoint_that_lacks_something_is_damaged(tmp_path):
    job = training(tmp_path)
    job.run_epoch()
    state = torch.load(job.checkpoint, weights_only=True)
    del state["parameters"]["fc.weight"]
    torch.save(state, job.checkpoint)
    with pytest.raises(TilewrightError, match="damaged checkpoint"):
        training(tmp_path).resume()


@pytest.mark.parametrize("keep", [0, 10, 1000])
def test_a_damaged_checkpoint_is_named(tmp_path, keep):
    job = training(tmp_path)
    job.run_epoch()
    job.checkpoint.write_bytes(job.checkpoint.read_bytes()[:keep])
    with pytest.raises(TilewrightError, match="damaged checkpoint"):
        training(tmp_path).resume()


def test_divergence_is_an_error(tmp_path):
    job = training(tmp_path, recipe=replace(RECIPE, learning_rate=1e30))
    with pytest.raises(TilewrightError, match="diverged"):
        for _ in range(3):
            job.run_epoch()


def test_what_cannot_be_trained(tmp_path):
    for layers, words in (
        (NETWORK.layers[:-1], "does not end in softmax"),
        ((Flatten(), Softmax()), "no parameters to train"),
        ((FullyConnected(1), Softmax()), "label 1 of image 1 is out of range"),
    ):
        with pytest.raises(TilewrightError, match=words):
            training(tmp_path, network=Network("n", NETWORK.input, layers))


def test_norms_are_folded_into_what_is_stored(tmp_path):
    """Stored weights alone give what weights and norms gave together."""
    job = training(tmp_path, recipe=replace(RECIPE, normalise=True))
    job.run_epoch()
    images = job.test_images
    with torch.no_grad():
        folded = job._scores(images, job._folded(), {})
        norm = job.norms["conv"]
        x = images.float() * NETWORK.input.scale + NETWORK.input.shift
        weight, bias = job.parameters["conv.weight"], job.parameters["conv.bias"]
        x = torch.nn.functional.conv2d(x, weight, bias, padding=1)
        x = torch.nn.functional.batch_norm(
            x, norm["mean"], norm["variance"], norm["scale"], norm["offset"], eps=1e-5
        )
        x = torch.nn.functional.max_pool2d(torch.relu(x), 2).flatten(1)
        whole = x @ job.parameters["fc.weight"].T + job.parameters["fc.bias"]
    torch.testing.assert_close(folded, whole, rtol=1e-4, atol=1e-4)
    assert not torch.equal(norm["mean"], torch.zeros(4))  # it has seen images
    before = job.test_accuracy()
    _, accuracy = job.finish()
    assert abs(accuracy - before) <= 1 / 32  # float16 moves no more than an image over the edge


def test_norms_go_on_where_they_stopped(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    recipe = replace(RECIPE, normalise=True)
    whole, _ = trained(tmp_path / "a", recipe=recipe)
    training(tmp_path / "b", recipe=recipe).run_epoch()
    again = training(tmp_path / "b", recipe=recipe)
    assert again.resume()
    again.run_epoch()
    again.run_epoch()
    resumed, _ = again.finish()
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], value)


def test_a_graph_is_trained(tmp_path):
    layers = (Convolution(4, 3, padding=1), ReLU(), Convolution(4, 3, padding=1), Add(), ReLU(),
              FullyConnected(2), Softmax())  # fmt: skip
    sources = ((0,), (1,), (2,), (3, 1), (4,), (5,), (6,))
    network = Network("residual", Pixels((1, 8, 8)), layers, sources=sources)
    _, accuracy = trained(tmp_path, network=network, recipe=replace(RECIPE, normalise=True))
    assert accuracy > 0.9
