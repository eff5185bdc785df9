"""One test body over every rung that can run on this machine."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import networks
from tilewright import reference
from tilewright.errors import TilewrightError
from tilewright.execute import Program
from tilewright.job import Request, run
from tilewright.ladder import ORDER, choose, rungs
from tilewright.ladder.vendor import onnxruntime, torch
from tilewright.plan import uniform
from tilewright.trials import random_parameters
from tilewright.verify import compare

RUNGS = [
    pytest.param(rung, id=rung.name, marks=pytest.mark.skipif(bool(reason), reason=str(reason)))
    for rung in rungs("cpu")
    for reason in [rung.missing("cpu")]
]


@pytest.mark.parametrize("rung", RUNGS)
def test_the_thesis_accuracy(rung, thesis_weights, thesis_images):
    result = run(
        Request(
            net="cifar10", weights=thesis_weights, data=str(thesis_images), images=1200,
            rung=rung.name,
        )
    )  # fmt: skip
    assert result.accuracy == 0.7825


@pytest.mark.parametrize("rung", RUNGS)
@settings(max_examples=40)
@given(
    network=networks(), images=st.integers(1, 5), batch=st.integers(1, 4), seed=st.integers(0, 999)
)
def test_any_network_in_any_batches(rung, network, images, batch, seed):
    """Whole networks, whatever their layers: each image's output is within its carried bound."""
    generator = np.random.default_rng(seed)
    network = network.with_parameters(random_parameters(network, generator))
    pixels = generator.integers(0, 256, (images, *network.input.shape), np.uint8)
    program = Program(network, uniform(network, rung, "cpu", batch))
    truth = reference.chain(network.stages, network.parameters, pixels, rung.precision)[-1]
    for _ in range(2):
        _, problem = compare(program(pixels), truth)
        assert problem is None, problem


@pytest.mark.parametrize("rung", RUNGS)
def test_float_images_enter_as_they_are(rung):
    network = choose_network()
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (3, *network.input.shape), np.uint8)
    values = (pixels * network.input.scale + network.input.shift).astype(np.float32)
    program = Program(network, uniform(network, rung, "cpu", 2))
    np.testing.assert_allclose(program(values), program(pixels), atol=1e-6)


def choose_network():
    import tilewright

    return tilewright.load("cifar10")


def test_the_ladder_is_in_order_and_explains_itself():
    names = [rung.name for rung in rungs("cpu")]
    assert names == [module.partition(".")[2] for module in ORDER]
    assert len(set(names)) == len(names)
    for rung in rungs("cpu"):
        assert 20 < len(rung.idea) < 100


def test_the_default_is_our_own_highest_rung():
    assert choose("cpu", None).name == "fused"


@pytest.mark.parametrize(
    ("device", "name", "words"),
    [
        ("cpu", "im2cool", "did you mean 'im2col'"),
        ("cpi", "im2col", "unknown device 'cpi'; did you mean 'cpu'?"),
        ("cuda", None, "no rung of our own runs on cuda"),
    ],
)
def test_wrong_names(device, name, words):
    with pytest.raises(TilewrightError) as error:
        choose(device, name)
    assert words in str(error.value)


def test_a_missing_package_says_which_and_how_to_get_it(monkeypatch):
    monkeypatch.setattr(onnxruntime, "find_spec", lambda name: None)
    monkeypatch.setattr(torch, "find_spec", lambda name: None)
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[onnxruntime\]'"):
        choose("cpu", "onnxruntime")
    with pytest.raises(TilewrightError, match=r"pip install 'tilewright\[torch\]'"):
        choose("cuda", "torch")
