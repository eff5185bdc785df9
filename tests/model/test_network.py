from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given

from tests.strategies import networks
from tilewright.errors import TilewrightError
from tilewright.model import zoo
from tilewright.model.layers import (
    Convolution,
    Flatten,
    FullyConnected,
    MaxPool,
    Pixels,
    ReLU,
    ReLU6,
    Softmax,
)
from tilewright.model.network import Network


def test_the_zoo_has_the_published_arithmetic():
    assert zoo.network("cifar10").flops == 7_840_000
    assert zoo.network("cifar10").parameter_count == 1216 + 8020 + 10020 + 3210
    assert round(zoo.network("ece408").flops / 1e6, 1) == 29.1
    assert zoo.network("ece408").stages[5].output_shape == (16224,)
    assert zoo.network("ece408-2017").output_shape == (10,)


def test_names_are_numbered_only_where_there_are_several():
    names = [stage.name for stage in zoo.network("cifar10").stages]
    assert names[:4] == ["input", "conv1", "relu1", "pool1"]
    assert names[-2:] == ["fc", "softmax"]


def test_no_name_comes_twice():
    """The sixth relu is not a relu6."""
    many = Network("many", Pixels((1, 2, 2)), (*[ReLU()] * 7, ReLU6(), ReLU6()))
    names = [stage.name for stage in many.stages]
    assert len(set(names)) == len(names)
    assert names[-3:] == ["relu7", "relu6_1", "relu6_2"]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((Convolution(4, 3), Convolution(4, 9)), "layer 2 (conv2): kernel 9x9 is larger"),
        ((FullyConnected(3), MaxPool(2)), "layer 2 (pool): needs a picture"),
        ((Softmax(),), "layer 1 (softmax): needs a row of features, not 1x8x8"),
        ((Pixels((1, 8, 8)),), "second input"),
        ((), "no layers"),
    ],
)
def test_shape_errors_name_the_layer(layers, words):
    with pytest.raises(TilewrightError, match="odd") as error:
        Network("odd", Pixels((1, 8, 8)), layers)
    assert words in str(error.value)


@given(networks())
def test_shapes_chain_and_counts_add_up(network):
    for before, after in zip(network.stages, network.stages[1:], strict=False):
        assert before.output_shape == after.input_shape
        assert all(size > 0 for size in after.output_shape)
    assert network.flops == sum(stage.flops for stage in network.stages)


class TestParameters:
    network = Network("n", Pixels((1, 4, 4)), (Convolution(2, 3), Flatten(), FullyConnected(3)))

    def good(self):
        shapes = self.network.parameter_shapes
        return {name: np.ones(shape, np.float64) for name, shape in shapes.items()}

    def test_are_kept_as_read_only_float32(self):
        parameters = self.network.with_parameters(self.good()).parameters
        weight = parameters["conv.weight"]
        assert weight.dtype == np.float32
        with pytest.raises(ValueError, match="read-only"):
            weight[0] = 0

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda p: p.pop("fc.bias"), "lack fc.bias"),
            (lambda p: p.update(extra=np.ones(1)), "have extra"),
            (lambda p: p.update({"fc.weight": np.ones((8, 3))}), "fc.weight is 8x3, but 'n' needs"),
            (lambda p: p.update({"fc.bias": np.ones(3, int)}), "fc.bias holds int64"),
            (lambda p: p["conv.weight"].__setitem__((1, 0, 2, 1), np.nan), "[1, 0, 2, 1] is nan"),
            (lambda p: p["conv.bias"].__setitem__(1, 1e39), "conv.bias[1] is 1e+39"),
        ],
    )
    def test_are_checked(self, change, words):
        parameters = self.good()
        change(parameters)
        with pytest.raises(TilewrightError) as error:
            self.network.with_parameters(parameters)
        assert words in str(error.value)


class TestAsAValue:
    bare = TestParameters.network
    full = bare.with_parameters(TestParameters().good(), {"seed": "1"})

    def test_it_prints_as_one_line(self):
        # 2x2x2 sums of 9 products, then 3 of 8, two FLOP a product; with biases.
        after = "1x4x4 to 3, 3 layers, 47 parameters"
        assert repr(self.full) == f"<Network 'n': {after}, 192 FLOP an image>"
        assert repr(self.bare) == f"<Network 'n': {after} (no weights yet), 192 FLOP an image>"

    def test_its_name_cannot_write_to_the_terminal(self):
        assert "\x1b" not in repr(Network("\x1b[2J", Pixels((1, 4, 4)), (Flatten(),)))

    @pytest.mark.parametrize(
        "again",
        [lambda n: pickle.loads(pickle.dumps(n)), copy.deepcopy, copy.copy],
        ids=["pickle", "deepcopy", "copy"],
    )
    def test_a_copy_is_the_same_and_as_read_only(self, again):
        made = again(self.full)
        assert (made.name, made.input, made.layers) == ("n", self.full.input, self.full.layers)
        assert made.stages == self.full.stages and made.notes == {"seed": "1"}
        assert list(made.parameters) == list(self.full.parameters)
        for name, values in made.parameters.items():
            assert np.array_equal(values, self.full.parameters[name])
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 0
        with pytest.raises(TypeError):
            made.parameters["fc.bias"] = np.zeros(3)

    def test_without_weights_it_can_be_copied_too(self):
        made = pickle.loads(pickle.dumps(self.bare))
        assert made.stages == self.bare.stages and not made.parameters


def test_operations_are_counted_once(monkeypatch):
    """Whoever launches a layer asks for them each time."""
    counted = []
    monkeypatch.setattr(Convolution, "flops", lambda self, shape: counted.append(shape) or 7)
    network = Network("net", Pixels((1, 4, 4)), (Convolution(2, 3),))
    assert [network.stages[1].flops for _ in range(3)] == [7, 7, 7]
    assert counted == [(1, 4, 4)]
    assert pickle.loads(pickle.dumps(network.stages[1])) == network.stages[1]
