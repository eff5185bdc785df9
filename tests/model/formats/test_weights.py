from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

import tilewright
from tilewright.errors import TilewrightError
from tilewright.model.formats import weights
from tilewright.model.layers import FullyConnected, Pixels
from tilewright.model.network import Network

NETWORK = Network("n", Pixels((1, 2, 2)), (FullyConnected(3),)).with_parameters(
    {"fc.weight": np.arange(12, dtype=np.float32).reshape(3, 4), "fc.bias": np.ones(3)},
    {"seed": "7"},
)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_round_trip(tmp_path, dtype):
    path = tmp_path / "w.safetensors"
    weights.save(NETWORK, path, dtype)
    stored = weights.read(path)
    assert stored.network is not None
    assert stored.network.layers == NETWORK.layers
    assert stored.notes == {"seed": "7"}
    assert stored.tensors["fc.weight"].dtype == dtype
    np.testing.assert_array_equal(stored.tensors["fc.weight"], NETWORK.parameters["fc.weight"])
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_values_too_large_for_the_stored_type_are_refused(tmp_path):
    big = {"fc.weight": np.full((3, 4), 1e6), "fc.bias": np.ones(3)}
    with pytest.raises(TilewrightError, match=r"fc\.weight as float16"):
        weights.save(NETWORK.with_parameters(big), tmp_path / "w.safetensors", np.float16)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", [(3, "w.safetensors"), (NETWORK, None)])
def test_only_networks_are_saved_and_only_at_paths(given):
    with pytest.raises(TilewrightError, match="save takes a Network and a path, not "):
        weights.save(*given)


def test_missing_file(tmp_path):
    with pytest.raises(TilewrightError, match="no\\.safetensors"):
        weights.read(tmp_path / "no.safetensors")


@given(data=st.data())
def test_damaged_files_are_refused_or_read_never_worse(data, tmp_path_factory):
    good = save({"a": np.arange(6.0)}, metadata={"k": "v"})
    content = bytearray(good)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    path = tmp_path_factory.mktemp("fuzz") / "w.safetensors"
    path.write_bytes(cut)
    try:
        stored = weights.read(path)
    except TilewrightError as error:
        assert "w.safetensors" in str(error)
    else:
        assert sum(t.nbytes for t in stored.tensors.values()) <= len(good)


@pytest.mark.parametrize("dtype", [np.int8, "int32", np.complex64, str, 5])
def test_what_could_not_be_read_is_not_written(tmp_path, dtype):
    with pytest.raises(TilewrightError, match="stored as float16, float32 or float64"):
        tilewright.save(tilewright.load("cifar10"), tmp_path / "w.safetensors", dtype)
    with pytest.raises(TilewrightError, match=r"must end in \.safetensors"):
        tilewright.save(tilewright.load("cifar10"), tmp_path / "w.onnx")
    assert not list(tmp_path.iterdir())
