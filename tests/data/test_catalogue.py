from __future__ import annotations

import numpy as np
import pytest

from tests.data.test_cifar10 import records
from tests.data.test_fashion_mnist import write as write_idx
from tilewright.data import catalogue, cifar10, fashion_mnist
from tilewright.errors import TilewrightError


def test_the_sample_is_here_and_is_enlarged():
    dataset = catalogue.open_data(catalogue.SAMPLE, (1, 70, 70))
    assert dataset.images.shape == (1000, 1, 70, 70)
    assert np.bincount(dataset.labels).tolist() == [107, 105, 111, 93, 115, 87, 97, 95, 95, 95]


def test_the_sample_carries_its_licence():
    place = catalogue.ENTRIES[catalogue.SAMPLE].locate(catalogue.home())[0].parent
    assert "Zalando" in (place / "LICENSE").read_text()


def test_fetched_sets_are_found(own_cache):
    kept = catalogue.home() / "cifar10"
    kept.mkdir(parents=True)
    for name in (*cifar10.TRAINING, cifar10.TEST):
        records(2).tofile(kept / name)
    assert len(catalogue.open_data("cifar10", (3, 32, 32))) == 10
    assert len(catalogue.open_data("cifar10-test", (3, 32, 32))) == 2
    training, test = catalogue.open_parts(None, (3, 32, 32))
    assert (len(training), len(test)) == (10, 2)
    training, test = catalogue.open_parts(kept, (3, 32, 32))
    assert (len(training), len(test)) == (10, 2)


def test_debians_package_is_found(tmp_path, monkeypatch):
    write_idx(tmp_path)
    write_idx(tmp_path, part="train")
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path)
    assert len(catalogue.open_data("fashion-mnist", (1, 3, 4))) == 2
    training, test = catalogue.open_parts(None, (1, 28, 28))
    assert training.shape == test.shape == (1, 28, 28)


def test_a_set_that_is_not_here_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path)
    with pytest.raises(TilewrightError, match=r"data fetch fashion-mnist` \(or install Debian"):
        catalogue.open_data("fashion-mnist", (1, 28, 28))
    with pytest.raises(TilewrightError, match="tilewright data fetch cifar10"):
        catalogue.open_data("cifar10", (3, 32, 32))


@pytest.mark.parametrize(
    ("source", "shape", "words"),
    [
        ("fashion-mnst", (1, 28, 28), "did you mean 'fashion-mnist'"),
        ("no/such/place", (1, 28, 28), "'no/such/place' does not exist"),
        ("no.npz", (1, 28, 28), "'no.npz' does not exist"),
        ("fashion-mnist-sample", (3, 28, 28), "images are 1x28x28, but the network takes 3x28x28"),
    ],
)
def test_wrong_sources_are_named(source, shape, words):
    with pytest.raises(TilewrightError) as error:
        catalogue.open_data(source, shape)
    assert words in str(error.value)


def test_empty_folders_and_other_files_are_refused(tmp_path):
    with pytest.raises(TilewrightError, match="no images found"):
        catalogue.open_data(tmp_path, (1, 28, 28))
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(TilewrightError, match=r"a\.txt: not a CIFAR-10 batch"):
        catalogue.open_data(tmp_path / "a.txt", (1, 28, 28))


def test_arrays_must_fit_as_they_are(tmp_path):
    np.savez(tmp_path / "a.npz", images=np.zeros((1, 3, 31, 31), np.uint8))
    with pytest.raises(TilewrightError, match="3x31x31, but the network takes 3x32x32"):
        catalogue.open_data(tmp_path / "a.npz", (3, 32, 32))
