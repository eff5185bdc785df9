from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright
from tests.model.formats.graphs import outputs, runtime
from tilewright.errors import TilewrightError
from tilewright.model.formats import convert, onnx_export, onnx_import
from tilewright.model.layers import (
    ELU,
    GELU,
    TYPES,
    Add,
    AveragePool,
    Concat,
    Convolution,
    Flatten,
    FullyConnected,
    HardSigmoid,
    HardSwish,
    LeakyReLU,
    MaxPool,
    Mish,
    Multiply,
    Pixels,
    ReLU,
    ReLU6,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Take,
    Tanh,
    TanhGELU,
)
from tilewright.model.network import Network

LAYERS = (
    Convolution(6, 3, padding=(0, 1, 1, 0), stride=(1, 2)),
    ReLU(),
    Convolution(6, 3, padding=2, dilation=2, groups=3, bias=False),
    Add(),
    SiLU(),
    MaxPool(2, stride=1),
    LeakyReLU(0.3),
    Concat(),
    HardSwish(),
    Take([1, 0, 0, 4, 3], [2, 2, 0, 1]),
    AveragePool(3, stride=1, padding=1, count_padding=True),
    ReLU6(),
    FullyConnected(12),
    Multiply(),
    GELU(),
    Flatten(),
    HardSigmoid(0.3, 0.4),
    FullyConnected(7),
    TanhGELU(),
    Tanh(),
    Mish(),
    ELU(0.7),
    Softplus(),
    FullyConnected(5, bias=False),
    Sigmoid(),
    Softmax(),
)
# The residual, the concatenation; all others take what the one before gave.
SOURCES = {4: (2, 3), 7: (6,), 8: (6, 7), 14: (12, 13)}


def network():
    pixels = Pixels((3, 7, 9), (1 / 255, 0.01, 1 / 3), (-0.5, 0.1, 0.0))
    sources = tuple(SOURCES.get(index, (index - 1,)) for index in range(1, len(LAYERS) + 1))
    bare = Network("all of it", pixels, LAYERS, sources=sources)
    numbers = np.random.default_rng(3)
    weights = {name: numbers.normal(0, 0.5, shape) for name, shape in bare.parameter_shapes.items()}
    return bare.with_parameters(weights, {"from": "a generator", "folded": "bn1"})


def test_the_network_has_every_kind():
    assert {layer.type for layer in LAYERS} == set(TYPES)


def test_what_was_written_reads_back_bit_for_bit(tmp_path):
    made, path = network(), tmp_path / "made.onnx"
    onnx_export.save(made, path)
    again = tilewright.load(path)
    assert again.layers == made.layers and again.sources == made.sources
    assert again.input == made.input and again.name == made.name
    assert dict(again.notes) == dict(made.notes)
    for name, value in made.parameters.items():
        assert again.parameters[name].tobytes() == value.tobytes(), name


def test_onnx_runtime_gets_the_same_pixels(tmp_path):
    made, path = network(), tmp_path / "made.onnx"
    onnx_export.save(made, path)
    onnx.checker.check_model(str(path), full_check=True)
    pixels = np.random.default_rng(4).integers(0, 256, (3, 3, 7, 9), np.uint8)
    np.testing.assert_allclose(runtime(path, pixels), outputs(made, pixels), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["cifar10", "ece408"])
def test_networks_of_the_zoo_go_there_and_back(name, tmp_path):
    made, path = tilewright.load(name), tmp_path / "made.onnx"
    onnx_export.save(made, path)
    again = tilewright.load(path)
    assert again.layers == made.layers and again.input == made.input
    assert all(
        again.parameters[key].tobytes() == made.parameters[key].tobytes() for key in made.parameters
    )


def test_without_its_description_a_file_is_read_as_any_other(tmp_path):
    """What the general way makes of it computes the same."""
    made, path = network(), tmp_path / "made.onnx"
    onnx_export.save(made, path)
    model = onnx.load(path)
    del model.metadata_props[:]
    path.write_bytes(model.SerializeToString())
    read = onnx_import.read(path)
    pixels = np.random.default_rng(4).integers(0, 256, (3, 3, 7, 9), np.uint8)
    np.testing.assert_allclose(outputs(read, pixels), outputs(made, pixels), rtol=1e-5, atol=1e-7)
    for found, expected in zip(read.parameters.values(), made.parameters.values(), strict=True):
        assert found.tobytes() == expected.tobytes()


def test_a_description_that_is_not_the_graphs_is_not_believed(tmp_path):
    made, path = network(), tmp_path / "made.onnx"
    onnx_export.save(made, path)
    model = onnx.load(path)
    for node in model.graph.node:
        if node.op_type == "LeakyRelu":
            node.attribute[0].f = 0.5
    path.write_bytes(model.SerializeToString())
    assert LeakyReLU(0.5) in tilewright.load(path).layers


def test_a_network_without_weights_is_refused(tmp_path):
    with pytest.raises(TilewrightError, match="no weights to save"):
        onnx_export.save(tilewright.load("ece408-2017"), tmp_path / "made.onnx")
    assert not list(tmp_path.iterdir())


SHAPES = ((2, 5, 7), (2, 6, 8), (2, 7, 7))
WINDOWS = [(2, 3, 0), (3, 2, 1), (3, 2, (1, 0, 0, 1)), (2, 3, 1), (3, 3, 0)]


@pytest.mark.parametrize(("size", "stride", "padding"), WINDOWS)
@pytest.mark.parametrize("kind", [MaxPool, AveragePool])
def test_a_ceil_pooling_is_padding_to_onnx_runtime(kind, size, stride, padding, tmp_path):
    """Which infers other shapes of `ceil_mode`, and refuses the layers that come after."""
    path = tmp_path / "made.onnx"
    for shape in SHAPES:
        layers = (kind(size, stride=stride, padding=padding, ceil=True), Flatten(),
                  FullyConnected(2, bias=False))  # fmt: skip
        bare = Network("ceil", Pixels(shape), layers)
        ((name, needed),) = bare.parameter_shapes.items()
        made = bare.with_parameters({name: np.random.default_rng(1).normal(size=needed)})
        onnx_export.save(made, path)
        onnx.checker.check_model(str(path), full_check=True)
        pixels = np.random.default_rng(2).integers(0, 256, (2, *shape), np.uint8)
        np.testing.assert_allclose(runtime(path, pixels), outputs(made, pixels), 1e-4, 1e-5)
        assert tilewright.load(path).layers == made.layers


def test_a_pooling_that_readers_divide_differently_is_refused(tmp_path):
    pooling = AveragePool(3, stride=2, padding=1, ceil=True, count_padding=True)
    made = Network("ceil", Pixels((1, 6, 6)), (pooling,))
    with pytest.raises(TilewrightError, match="pool counts its padding"):
        onnx_export.save(made, tmp_path / "made.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("end", ["onnx", "safetensors", "json"])
def test_a_name_that_could_not_be_read_again_is_not_written(end, tmp_path):
    made = network()
    steered = Network("a\x1b[2J", made.input, made.layers, sources=made.sources)
    steered = steered.with_parameters(made.parameters)
    with pytest.raises(TilewrightError, match="printable characters") as error:
        convert.write(steered, tmp_path / f"made.{end}")
    assert str(error.value).isprintable()
    assert not list(tmp_path.iterdir())
